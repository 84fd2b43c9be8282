"""`ottla pipeline verify`: reads a pipeline's commits, source and sink again and proves that it ran exactly once.

The exit code is 1 if rows are missing or doubled, if the sink has records of another producer (unless `--shared-sink` allows them), or if
there is nothing to prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cli.command import Args, UsageError, command, flag, merged, option
from ottla.cli.output import write
from ottla.cli.pipeline.definition import connect_for, is_file, load_pipelines
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row, column, json_only

if TYPE_CHECKING:
    from ottla.spark.verify import Verification


class SourceRow(Row):
    """A source partition of a pipeline, with the offsets that were committed exactly once."""

    topic: str = column("SOURCE")
    partition: int
    start: int = column("FIRST-OFFSET")
    end: int = column("NEXT-OFFSET")
    batches: int
    rows: int
    lag: int


class SinkRow(Row):
    """A sink partition of a pipeline, with its committed rows. `other_rows` are from other producers."""

    topic: str = column("SINK")
    partition: int
    start: int = column("FIRST-OFFSET")
    end: int = column("NEXT-OFFSET")
    rows: int
    other_rows: int


class VerificationRow(Row):
    """The result of verifying a pipeline."""

    group: str
    proved: bool
    batches: int
    rows_in: int
    rows_out: int
    lag: int
    fault_count: int = column("FAULTS")
    first_batch: dict[str, Any] | None = json_only()
    last_batch: dict[str, Any] | None = json_only()
    source: list[SourceRow] = json_only()
    sink: list[SinkRow] = json_only()
    faults: list[dict[str, str]] = json_only()
    notes: list[str] = json_only()


@command(
    "pipeline verify",
    "Prove from the log that a pipeline ran exactly once; exit code 1 if not.",
    option("what", metavar="GROUP|FILE.py", help="the pipeline's group, or a file that defines pipelines"),
    option("-g", "--group", action="append", metavar="GROUP", help="of a file only the pipeline of this group; repeatable"),
    option("--sink", action="append", metavar="TOPIC[,...]", help="the topics that the pipeline writes to; needed with a group"),
    flag("--shared-sink", help="records of other producers in the sink are no fault"),
)
def _run(args: Args, output: Output) -> int:
    found = _verify_all(args)
    rows = [verification_row(one) for one in found]
    if output.form == "table":
        _show_tables(output, rows)
    else:
        output.rows("pipelines", VerificationRow, rows)
    return 0 if all(one.is_proved for one in found) else 1


def _verify_all(args: Args) -> list[Verification]:
    sinks = merged(args.sink)
    if is_file(args.what):
        pipelines = load_pipelines(args, args.what)
        return [_verify(args, pipeline.group, sinks or pipeline.sinks, pipeline) for pipeline in pipelines]
    if not sinks:
        raise UsageError("name the topics that the pipeline writes to by --sink, or the file that defines it")
    return [_verify(args, args.what, sinks, None)]


def _verify(args: Args, group: str, sinks: list[str], pipeline: Any) -> Verification:
    from ottla.spark.verify import verify

    with connect_for(args, pipeline) as client:
        return verify(client, group, sinks, may_share_sink=args.shared_sink)


def verification_row(found: Verification) -> VerificationRow:
    """Returns the row of a verification."""
    return VerificationRow(
        found.group,
        found.is_proved,
        found.batches,
        sum(one.rows for one in found.source),
        found.rows,
        sum(one.lag for one in found.source),
        len(found.faults),
        first_batch=_batch(found.first_batch),
        last_batch=_batch(found.last_batch),
        source=[SourceRow(**one._asdict()) for one in found.source],
        sink=[SinkRow(**one._asdict()) for one in found.sink],
        faults=[{"kind": fault.kind, "message": fault.message} for fault in found.faults],
        notes=list(found.notes),
    )


def _batch(name: tuple[str, int] | None) -> dict[str, Any] | None:
    return None if name is None else {"query_id": name[0], "batch_id": name[1]}


def _show_tables(output: Output, rows: list[VerificationRow]) -> None:
    for row in rows:
        output.rows("source", SourceRow, row.source)
        write("\n")
        output.rows("sink", SinkRow, row.sink)
        write("\n")
        for fault in row.faults:
            write(f"fault    {fault['kind']}: {fault['message']}\n")
        for note in row.notes:
            write(f"note     {note}\n")
    output.rows("pipelines", VerificationRow, rows)
