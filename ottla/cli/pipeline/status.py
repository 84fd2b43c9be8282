"""`ottla pipeline status`: batches, rows, offsets in and out, lag, last commit and restarts of pipelines.

The group's log has the commits, so the name of a group is enough. For a file with pipelines, the state file next to the checkpoint adds the
figures of Spark and the number of starts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Args, Refused, command, flag, option
from ottla.cli.moments import format_ms
from ottla.cli.pipeline.definition import connect_for, is_file, load_pipelines
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, json_only, unshown

if TYPE_CHECKING:
    from ottla.spark.state_file import PipelineState


class PipelineRow(Row):
    """The progress of a pipeline; in JSON with its source partitions and all fields of its state."""

    group: str
    state: str
    batch_id: int = column("BATCH")
    commits: int
    rows_in: int | None
    rows_out: int
    lag: int
    last_commit: str | None
    restarts: int | None
    error: str
    positions: list[PositionRow] = json_only()
    facts: dict[str, Any] = unshown()

    def as_json(self, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Returns all fields of the pipeline's state, replaced by this row's fields where both have one."""
        positions = [one.as_json(without=("group",)) for one in self.positions]
        return {**self.facts, **super().as_json(without=("positions",)), "positions": positions}


class PositionRow(Row):
    """A source partition of a pipeline: committed offset, end offset and lag."""

    group: str
    topic: str
    partition: int
    committed: int = column("CURRENT-OFFSET")
    end: int = column("LOG-END-OFFSET")
    lag: int


def state_row(state: PipelineState) -> PipelineRow:
    """Returns the row of a pipeline. `rows_in` and `restarts` are None if no state file has counted a start."""
    return PipelineRow(
        state.group,
        state.state,
        state.batch_id,
        state.commits,
        state.rows_in if state.starts else None,
        state.rows_out,
        state.lag,
        format_ms(state.last_commit_ms) if state.last_commit_ms else None,
        state.restarts if state.starts else None,
        state.error,
        [PositionRow(group=state.group, **asdict(one), lag=one.lag) for one in state.positions],
        asdict(state),
    )


@command(
    "pipeline status",
    "Batches, rows, offsets, lag, last commit and restarts.",
    option("what", nargs="+", metavar="GROUP|FILE.py", help="a pipeline's group, or a file that defines pipelines; repeatable"),
    flag("--offsets", help="a line for each source partition"),
    option("--state-file", metavar="FILE", help="where the pipeline of the group keeps its state"),
    may_watch=True,
)
def _run(args: Args, output: Output) -> None:
    rows = [state_row(state) for what in args.what for state in _states(args, what)]
    if args.offsets and not output.is_structured:
        output.rows("positions", PositionRow, [position for row in rows for position in row.positions])
    else:
        output.rows("pipelines", PipelineRow, rows)


def _states(args: Args, what: str) -> list[PipelineState]:
    if is_file(what):
        pipelines = load_pipelines(args, what)
        return [_state(args, pipeline.group, pipeline.state_file, pipeline) for pipeline in pipelines]
    return [_state(args, what, Path(args.state_file) if args.state_file else None, None)]


def _state(args: Args, group: str, path: Path | None, pipeline: Any) -> PipelineState:
    from ottla.spark.progress import read_state

    with connect_for(args, pipeline) as client:
        state = read_state(client, group, path)
    if state is None:
        raise Refused(f"no pipeline has run with the group {group!r}", "GROUP_ID_NOT_FOUND")
    return state
