"""`ottla pipeline run FILE.py`: runs the pipelines that a file defines, until they end, Ctrl-C or SIGTERM.

Ctrl-C and SIGTERM stop each query after its running batch. A batch that is not committed runs again at the next start. Exit codes: 0 after
the pipelines' end and after SIGTERM, 130 after Ctrl-C, 1 if a query failed, or if Java or a package is missing.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.cli.command import Args, Refused, UsageError, command, option
from ottla.cli.options import output_of
from ottla.cli.pipeline.definition import load_pipelines
from ottla.cli.pipeline.status import PipelineRow, state_row
from ottla.cli.render.ottla import Output

if TYPE_CHECKING:
    from ottla.spark.pipeline import Pipeline
    from ottla.spark.state_file import PipelineState


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
)
def _run(args: Args, output: Output) -> int:
    from ottla.spark.errors import PipelineError, QueryFailedError

    try:
        pipelines = load_pipelines(args, args.file)
        if args.checkpoint and len(pipelines) > 1:
            raise UsageError("--checkpoint is for one pipeline; choose it by --group")
        return _run_all(args, [_changed(args, pipeline) for pipeline in pipelines])
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


def _run_all(args: Args, pipelines: list[Pipeline]) -> int:
    from ottla.spark.runner import StopRequest, run_pipelines

    output = output_of(args)
    for pipeline in pipelines:
        topics = f"{', '.join(pipeline.sources)} -> {', '.join(pipeline.sinks)}"
        output.note(f"{pipeline.query_name}: {topics}, checkpoint {pipeline.checkpoint_location}")
    stop = StopRequest()
    states: list[PipelineState] = run_pipelines(
        pipelines, master=args.master, metrics_port=args.metrics_port, metrics_file=args.metrics_file, stop=stop
    )
    output.rows("pipelines", PipelineRow, [state_row(state) for state in states])
    return EXIT_INTERRUPTED if stop.signal_number == signal.SIGINT else 0
