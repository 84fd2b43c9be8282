"""`ottla pipeline status`: batches, rows, offsets in and out, lag, last commit and restarts of pipelines.

What was committed comes from the group's log, so a group is enough; for a file with pipelines the state file next to the checkpoint adds
what Spark reported and how often the pipeline was started.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Command, Refused
from ottla.cli.moments import format_ms
from ottla.cli.options import output_of
from ottla.cli.output import Columns
from ottla.cli.pipeline.definition import connect_for, is_file, load_pipelines

if TYPE_CHECKING:
    from ottla.spark.state_file import PipelineState

COLUMNS: Columns = (
    ("GROUP", "group"),
    ("STATE", "state"),
    ("BATCH", "batch_id"),
    ("COMMITS", "commits"),
    ("ROWS-IN", "rows_in"),
    ("ROWS-OUT", "rows_out"),
    ("LAG", "lag"),
    ("LAST-COMMIT", "last_commit"),
    ("RESTARTS", "restarts"),
    ("ERROR", "error"),
)
POSITION_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT-OFFSET", "committed"),
    ("LOG-END-OFFSET", "end"),
    ("LAG", "lag"),
)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", nargs="+", metavar="GROUP|FILE.py", help="a pipeline's group, or a file that defines pipelines; repeatable")
    add("--offsets", action="store_true", help="a line for each source partition")
    add("--state-file", metavar="FILE", help="where the pipeline of the group keeps its state")


def state_row(state: PipelineState) -> dict[str, Any]:
    """A pipeline as a line of the table, and as the JSON object."""
    return {
        **asdict(state),
        "positions": [{**asdict(one), "lag": one.lag} for one in state.positions],
        "lag": state.lag,
        "restarts": state.restarts if state.starts else None,
        "rows_in": state.rows_in if state.starts else None,
        "last_commit": format_ms(state.last_commit_ms) if state.last_commit_ms else None,
    }


def _run(args: argparse.Namespace) -> int:
    rows = [state_row(state) for what in args.what for state in _states(args, what)]
    output = output_of(args)
    if args.offsets and not output.is_structured:
        positions = [{**one, "group": row["group"]} for row in rows for one in row["positions"]]
        output.show("positions", positions, POSITION_COLUMNS)
    else:
        output.show("pipelines", rows, COLUMNS)
    return 0


def _states(args: argparse.Namespace, what: str) -> list[PipelineState]:
    if is_file(what):
        pipelines = load_pipelines(args, what)
        return [_state(args, pipeline.group, pipeline.state_file, pipeline) for pipeline in pipelines]
    return [_state(args, what, Path(args.state_file) if args.state_file else None, None)]


def _state(args: argparse.Namespace, group: str, path: Path | None, pipeline: Any) -> PipelineState:
    from ottla.spark.progress import read_state

    with connect_for(args, pipeline) as client:
        state = read_state(client, group, path)
    if state is None:
        raise Refused(f"no pipeline has run with the group {group!r}", "GROUP_ID_NOT_FOUND")
    return state


STATUS = Command("Batches, rows, offsets, lag, last commit and restarts.", _arguments, _run, may_watch=True)
