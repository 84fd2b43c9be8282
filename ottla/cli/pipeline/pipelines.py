"""Implements `ottla pipeline`: runs the exactly-once pipelines that a Python file defines, shows their progress, and proves from the log
that they ran exactly once.

Ctrl-C and SIGTERM stop each query after its running batch. A batch that is not committed runs again at the next start. Exit codes of `run`:
0 after the pipelines' end and after SIGTERM, 130 after Ctrl-C, 1 if a query failed, or if Java or a package is missing. `status` reads the
commits in `__consumer_offsets`, so the name of a group is sufficient. For a file with pipelines, it adds Spark's figures and the number of
starts from the state file next to the checkpoint. `verify` exits with 1 if rows are missing or duplicated, or if there is no commit to
judge. It also does so if the sink has records of another producer, unless `--shared-sink` allows them. The commits of a pipeline that
writes a table are in the table's log; `verify` then needs the file. `compact` joins the small files of such a table.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import traceback
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.analysis.moments import format_ms
from ottla.cli import options
from ottla.cli.command import Args, Refused, UsageError, command, flag, merged, option
from ottla.cli.output import write
from ottla.cli.render.ottla import Output, Row, column, json_only, unshown

if TYPE_CHECKING:
    from ottla.client import Client
    from ottla.spark.pipeline import Pipeline
    from ottla.spark.state_file import PipelineState, SourcePosition
    from ottla.spark.verify import Verification


def is_file(word: str) -> bool:
    """Returns whether a word names a file with pipelines (`.py`), and not a group."""
    return word.endswith(".py")


def load_pipelines(args: Args, path: str) -> list[Pipeline]:
    """Returns the pipelines of a file in the order of definition. `--group` selects the pipelines of the named groups. Connection options
    and the brokers in the environment replace the values in the file. Raises UsageError if the file or a pipeline is not found, `Refused`
    if the file raises an error.
    """
    from ottla.spark.pipeline import Pipeline

    module = _import_file(Path(path))
    # Compared by identity, because a file may assign one pipeline to two names, and two pipelines may have equal values.
    found = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    pipelines = [_connected(args, one) for one in found.values()]
    if not pipelines:
        raise UsageError(f"{path} defines no pipeline; it needs a line such as `pipeline = ottla.spark.Pipeline(group=..., ...)`")
    wanted = getattr(args, "group", None)
    if wanted:
        pipelines = [pipeline for pipeline in pipelines if pipeline.group in wanted]
        if not pipelines:
            raise UsageError(f"{path} defines no pipeline of the group {', '.join(wanted)}")
    return pipelines


def _import_file(path: Path) -> Any:
    """Runs the file as a module with a unique name. Its folder is appended to the end of the path, so that a `copy.py` in it does not
    replace Python's module.
    """
    from ottla.spark.runner import FILE_MODULE_PREFIX

    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    name = FILE_MODULE_PREFIX + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Refused(_failure(path, error), type(error).__name__) from None
    return module


def _failure(path: Path, error: Exception) -> str:
    """Describes an error in the user's file in one line, with the number of the file's line that raised it."""
    from ottla.spark.errors import PipelineError

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.absolute())]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    name = "" if isinstance(error, PipelineError) else f"{type(error).__name__}: "
    return f"{path}:{line}: {name}{error}" if line else f"{path}: {name}{error}"


def _connected(args: Args, pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with the connection options applied. The current profile is used only if the file names no brokers."""
    from ottla.client.addresses import DEFAULT_BOOTSTRAP

    properties = options.properties_of(args, with_current_profile=pipeline.bootstrap == DEFAULT_BOOTSTRAP)
    bootstrap = properties.pop("bootstrap.servers", pipeline.bootstrap)
    return replace(pipeline, bootstrap=bootstrap, connection={**pipeline.connection, **properties})


def connect_for(args: Args, pipeline: Pipeline | None) -> Client:
    """Returns a client of the pipeline's cluster; without a pipeline, of the cluster that the options name."""
    from ottla.client.blocking.client import Client, connect

    if pipeline is None:
        return Client(options.connect(args))
    return connect(pipeline.bootstrap, pipeline.connection, timeout_s=options.DEFAULT_TIMEOUT_MS / 1000)


EXIT_INTERRUPTED = 130


@command(
    "pipeline run",
    "Run the pipelines of a file until they end, Ctrl-C or SIGTERM.",
    option("file", metavar="FILE.py", help="a Python file that defines pipelines"),
    option("-g", "--group", action="append", metavar="GROUP", help="only the pipeline of this group; repeatable"),
    option("--checkpoint", metavar="DIR", help="instead of the pipeline's own, for one pipeline"),
    option("--trigger", metavar="WHEN", help="available-now (stop at the end of what there is), or a time such as '5 seconds'"),
    option("--once", action="store_const", dest="trigger", const="available-now", help="short for --trigger available-now"),
    option("--master", metavar="URL", help="Spark's master (default: all cores of this machine)"),
    option("--conf", action="append", metavar="KEY=VALUE", help="a setting of Spark; repeatable"),
    option("--metrics-port", type=int, metavar="PORT", help="serve Prometheus' text at /metrics on loopback"),
    option("--metrics-file", metavar="FILE", help="keep Prometheus' text in this file"),
    flag("--watch", help="show batches, rows a second and lag as they go"),
)
def _run(args: Args, output: Output) -> int:
    from ottla.spark.errors import PipelineError, QueryFailedError

    try:
        pipelines = load_pipelines(args, args.file)
        if args.checkpoint and len(pipelines) > 1:
            raise UsageError("--checkpoint is for one pipeline; choose it by --group")
        return _run_all(args, output, [_changed(args, pipeline) for pipeline in pipelines])
    except QueryFailedError as error:
        if error.details:
            output.note(error.details)
        raise Refused(str(error), type(error).__name__) from None
    except PipelineError as error:
        raise Refused(str(error), type(error).__name__) from None


def _changed(args: Args, pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with the settings, trigger and checkpoint that the options give."""
    settings = dict(pipeline.settings)
    for text in args.conf or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--conf {text!r} is not KEY=VALUE")
        settings[key] = value
    trigger = pipeline.trigger if args.trigger is None else args.trigger
    return replace(pipeline, settings=settings, trigger=trigger, checkpoint=args.checkpoint or pipeline.checkpoint)


def _run_all(args: Args, output: Output, pipelines: list[Pipeline]) -> int:
    from ottla.cli.pipeline.watching import ProgressWatch
    from ottla.spark.runner import StopRequest, run_pipelines

    for pipeline in pipelines:
        topics = f"{', '.join(pipeline.sources)} -> {', '.join(pipeline.sinks)}"
        output.note(f"{pipeline.query_name}: {topics}, checkpoint {pipeline.checkpoint_location}")
    stop = StopRequest()
    states: list[PipelineState] = run_pipelines(
        pipelines,
        master=args.master,
        metrics_port=args.metrics_port,
        metrics_file=args.metrics_file,
        stop=stop,
        is_quiet=not args.verbose,
        watch=ProgressWatch().show if args.watch else None,
    )
    output.rows("pipelines", PipelineRow, [state_row(state) for state in states])
    return EXIT_INTERRUPTED if stop.signal_number == signal.SIGINT else 0


class PipelineRow(Row):
    """The progress of a pipeline; in JSON with its source partitions and all fields of its state."""

    group: str
    state: str
    batch_id: int = column("BATCH")
    commits: int
    rows_in: int | None
    rows_out: int
    lag: int
    lag_seconds: float = column("SECONDS")
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
    """A source partition of a pipeline: committed offset, end offset and lag, in offsets and in seconds."""

    group: str
    topic: str
    partition: int
    committed: int = column("CURRENT-OFFSET")
    end: int = column("LOG-END-OFFSET")
    lag: int
    lag_seconds: float = column("SECONDS")


def state_row(state: PipelineState) -> PipelineRow:
    """Returns the row of a pipeline. `rows_in` is None if no state file has counted a start, `restarts` if the log does not have it too."""
    return PipelineRow(
        state.group,
        state.state,
        state.batch_id,
        state.commits,
        state.rows_in if state.starts else None,
        state.rows_out,
        state.lag,
        round(state.lag_seconds, 3),
        format_ms(state.last_commit_ms) if state.last_commit_ms else None,
        state.restarts,
        state.error,
        [_position_row(state.group, one) for one in state.positions],
        asdict(state),
    )


def _position_row(group: str, one: SourcePosition) -> PositionRow:
    return PositionRow(group, one.topic, one.partition, one.committed, one.end, one.lag, round(one.lag_seconds, 3))


@command(
    "pipeline status",
    "Batches, rows, offsets, lag, last commit and restarts.",
    option("what", nargs="+", metavar="GROUP|FILE.py", help="a pipeline's group, or a file that defines pipelines; repeatable"),
    flag("--offsets", help="a line for each source partition"),
    option("--state-file", metavar="FILE", help="where the pipeline of the group keeps its state"),
    may_watch=True,
)
def _status(args: Args, output: Output) -> None:
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
    """A sink partition of a pipeline, with its committed rows. `other_rows` are from other producers.

    A table has one row: its location, the first and the next version of its log, and the number of rows.
    """

    topic: str = column("SINK")
    partition: int
    start: int = column("FIRST-OFFSET")
    end: int = column("NEXT-OFFSET")
    rows: int
    other_rows: int


class VerificationRow(Row):
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
    flag("--shared-sink", help="allow records of other producers in the sink"),
)
def _prove(args: Args, output: Output) -> int:
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
        raise UsageError("name the topics that the pipeline writes to by --sink, or the file that defines it (needed for a table)")
    return [_verify(args, args.what, sinks, None)]


def _verify(args: Args, group: str, sinks: list[str], pipeline: Pipeline | None) -> Verification:
    from ottla.spark.errors import PipelineError
    from ottla.spark.verify import verify

    with connect_for(args, pipeline) as client:
        if pipeline is None or pipeline.table is None:
            return verify(client, group, sinks, may_share_sink=args.shared_sink)
        try:
            from ottla.spark.tables.verify import verify_table

            return verify_table(client, group, pipeline.table, may_share_sink=args.shared_sink)
        except PipelineError as error:
            raise Refused(str(error), type(error).__name__) from None


def verification_row(found: Verification) -> VerificationRow:
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


class CompactionRow(Row):
    """The result of a compaction of a pipeline's table: its data files before and after, their bytes after, and the removed files."""

    group: str
    table: str
    files_before: int = column("FILES-BEFORE")
    files_after: int = column("FILES-AFTER")
    size_bytes: int = column("BYTES")
    removed: int


@command(
    "pipeline compact",
    "Join the small files of the tables that pipelines write; may run beside them.",
    option("file", metavar="FILE.py", help="a Python file that defines pipelines"),
    option("-g", "--group", action="append", metavar="GROUP", help="only the pipeline of this group; repeatable"),
)
def _compact(args: Args, output: Output) -> None:
    from ottla.spark.errors import PipelineError

    pipelines = load_pipelines(args, args.file)
    tables = [(pipeline.group, table) for pipeline in pipelines if (table := pipeline.table) is not None]
    if not tables:
        raise UsageError(f"no pipeline of {args.file} writes a table")
    try:
        from ottla.spark.tables.compaction import compact
        from ottla.spark.tables.formats import INSTALL

        rows = [CompactionRow(group, table.uri, *compact(table)) for group, table in tables]
    except PipelineError as error:
        raise Refused(str(error), type(error).__name__) from None
    except ModuleNotFoundError as error:
        raise Refused(f"{error.name} is missing; install it: {INSTALL}", type(error).__name__) from None
    output.rows("tables", CompactionRow, rows)
