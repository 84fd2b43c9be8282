"""Runs pipelines in one Spark session until they end, fail or are stopped, and maintains their state and metrics."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from ottla.analysis.progress import StatusLine, is_notebook
from ottla.spark.errors import SQL_STATE, QueryFailedError, error_in, reason_of
from ottla.spark.progress import ProgressRecorder, progress_after
from ottla.spark.prometheus import MetricsServer, write_metrics_file
from ottla.spark.session import CHECKPOINT_MANAGER, build_session, check_packages, is_chosen
from ottla.spark.state_file import FAILED, STOPPED, PipelineState

FILE_MODULE_PREFIX = "ottla_pipeline_file_"
"""Prefix of the modules made from users' files, because their own names might collide with other modules."""

POLL_SECONDS = 0.3
STOP_POLL_SECONDS = 0.05
BATCH_SECONDS_MAX = 15.0
"""Seconds that a stop waits for the running batch; then the batch is interrupted, which only loses its work."""

_JAVA_FRAME = re.compile(r"\s+(?:at [\w.$/<>]+\(|\.\.\. \d+ more)")
_PLAN = "=== Streaming Query ==="
_CAUSE = "Traceback (most recent call last)"

ShowStates = Callable[[Sequence[PipelineState]], None]
Watch = Callable[[Sequence[PipelineState], bool], None]
"""Gets the states of all pipelines, and whether these are the last ones."""


class Runnable(Protocol):
    """A `Pipeline`, or any object with these members."""

    @property
    def group(self) -> str: ...
    @property
    def query_name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def connection(self) -> Mapping[str, str]: ...
    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def sources(self) -> list[str]: ...
    @property
    def sinks(self) -> list[str]: ...
    @property
    def checkpoint_location(self) -> str: ...
    @property
    def state_file(self) -> Path: ...
    def start(self, session: Any) -> Any:
        """Starts the query and returns it."""


class StopRequest:
    """Ends a run when `ask` is called, from any thread or a signal handler. `signal_number` is the signal that caused it, 0 for none.

    It is not a `threading.Event`, because the thread that a signal handler interrupts may hold the event's lock.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.signal_number = 0

    def ask(self, signal_number: int = 0) -> None:
        self.signal_number = self.signal_number or signal_number
        self.is_asked = True


class RunningPipeline:
    def __init__(self, pipeline: Runnable, session: Any) -> None:
        self.pipeline = pipeline
        reads = 2 if getattr(pipeline, "dead_letter_topic", "") else 1
        self.recorder = ProgressRecorder(
            pipeline.state_file, pipeline.group, bootstrap=pipeline.bootstrap, connection=pipeline.connection, reads=reads
        )
        self._mark: tuple[int, str] | None = None
        self.query = pipeline.start(session)
        self.recorder.begin(query_id=str(self.query.id), sources=pipeline.sources, sinks=pipeline.sinks)

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    def observe(self, *, is_last: bool = False) -> bool:
        """Returns whether the state has changed."""
        last = self.query.lastProgress
        mark = (last["batchId"], last["timestamp"]) if last is not None else None
        if mark == self._mark:
            return self.recorder.observe([], is_last=is_last)
        self._mark = mark
        return self.recorder.observe(progress_after(self.query, self.recorder.batch_seen), is_last=is_last)

    def failure(self) -> QueryFailedError | None:
        """Returns why the query has failed; None while it runs, and after a normal end."""
        error = self.query.exception()
        return None if error is None else failure_of(str(error))

    def close(self, *, is_asked: bool) -> QueryFailedError | None:
        """Stops the query, after its batch if that ends soon, and stores the last state. Returns the failure; None if there is none, or if
        the stop was asked for."""
        try:
            if self.is_active:
                stop_query(self.query)
            failed = None if is_asked else self.failure()
            self.observe(is_last=True)
        except spark_errors() as error:
            failed = None if is_asked else failure_of(str(error))
        self.recorder.end(FAILED if failed else STOPPED, str(failed or ""))
        return failed


def spark_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions of calls to Spark: Spark's own, and errors of the connection to its Java process."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return PySparkException, Py4JError, ConnectionError


def stop_query(query: Any, batch_s: float = BATCH_SECONDS_MAX) -> None:
    """Stops a query between two batches, or after `batch_s` during one."""
    deadline = time.monotonic() + batch_s
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(STOP_POLL_SECONDS)
    query.stop()


def run_pipelines(
    pipelines: Sequence[Runnable],
    session: Any = None,
    *,
    master: str | None = None,
    metrics_port: int | None = None,
    metrics_file: str | Path | None = None,
    stop: StopRequest | None = None,
    is_quiet: bool = True,
    watch: Watch | None = None,
) -> list[PipelineState]:
    """Runs pipelines concurrently until all have ended; returns their states.

    When one fails, the others are stopped and `QueryFailedError` is raised. `stop` stops all, as do Ctrl-C and SIGTERM in the main thread.
    `metrics_port` serves Prometheus' text format on loopback; `metrics_file` writes it to a file. `is_quiet` is for a session that this
    function makes (`build_session`). In a notebook the cell shows one line with batches, rows and lag, which is updated after each batch.
    `watch` is called after each look at the queries.
    """
    stop = stop or StopRequest()
    if session is None:
        session = build_session(pipelines[0].query_name, master=master, config=settings_of(pipelines), is_quiet=is_quiet)
    _send_files_with_tasks(pipelines)
    running: list[RunningPipeline] = []
    show = _show_in_notebook() if is_notebook() else nullcontext(lambda _: None)
    with _signals(stop), _metrics(running, metrics_port), show as show_states:
        failures: list[QueryFailedError] = []
        try:
            for pipeline in pipelines:
                running.append(RunningPipeline(pipeline, session))
            _observe_all(running, stop, metrics_file, show_states, watch)
        except spark_errors() as error:
            failures.append(failure_of(str(error)))
        finally:
            failures += [failed for one in running if (failed := one.close(is_asked=stop.is_asked)) is not None]
            _write_metrics(running, metrics_file)
            show_states(_states(running))
            if watch is not None:
                watch(_states(running), True)
    if failures:
        raise failures[0]
    return _states(running)


def settings_of(pipelines: Sequence[Runnable]) -> dict[str, str]:
    """Returns Spark's settings for a session of these pipelines."""
    settings = {key: value for pipeline in pipelines for key, value in pipeline.settings.items()}
    if all("://" not in pipeline.checkpoint_location for pipeline in pipelines) and not is_chosen(CHECKPOINT_MANAGER, settings):
        check_packages()
        from ottla.spark.spark_versions import LOCAL_CHECKPOINTS

        settings[CHECKPOINT_MANAGER] = LOCAL_CHECKPOINTS
    return settings


def _states(running: Sequence[RunningPipeline]) -> list[PipelineState]:
    return [one.recorder.state for one in running]


def _send_files_with_tasks(pipelines: Sequence[Runnable]) -> None:
    """Sends the definitions of a pipeline's file to tasks by value, because tasks cannot import the file."""
    for pipeline in pipelines:
        name = str(getattr(getattr(pipeline, "transform", None), "__module__", ""))
        if name.startswith(FILE_MODULE_PREFIX) and name in sys.modules:
            from pyspark import cloudpickle

            cloudpickle.register_pickle_by_value(sys.modules[name])


def _observe_all(
    running: Sequence[RunningPipeline],
    stop: StopRequest,
    metrics_file: str | Path | None,
    show_states: ShowStates,
    watch: Watch | None,
) -> None:
    """Observes the queries until one fails, all have ended, or a stop is asked for."""
    show_states(_states(running))
    while not stop.is_asked:
        time.sleep(POLL_SECONDS)
        news = [one.observe() for one in running]
        if any(news):
            _write_metrics(running, metrics_file)
            show_states(_states(running))
        if watch is not None:
            watch(_states(running), False)
        if any(not one.is_active and one.failure() for one in running) or not any(one.is_active for one in running):
            return


@contextmanager
def _metrics(running: Sequence[RunningPipeline], port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    server = MetricsServer(port, lambda: _states(running))
    try:
        yield
    finally:
        server.close()


def _write_metrics(running: Sequence[RunningPipeline], path: str | Path | None) -> None:
    if path is not None:
        write_metrics_file(Path(path), _states(running))


@contextmanager
def _show_in_notebook() -> Iterator[ShowStates]:
    """Yields a function that shows the states of all pipelines on one line of the cell. At the end the line is kept."""
    line = StatusLine()
    try:
        yield lambda states: line.show(" | ".join(map(progress_text, states)))
    finally:
        line.end()


def progress_text(state: PipelineState) -> str:
    """Describes the progress of a pipeline in a few words."""
    return f"{state.group}: {state.state}, {state.commits:,} batches, {state.rows_in:,} rows in, {state.rows_out:,} out, lag {state.lag:,}"


@contextmanager
def _signals(stop: StopRequest) -> Iterator[None]:
    """Makes SIGTERM and Ctrl-C set `stop`, if it is called in the main thread; a second Ctrl-C raises KeyboardInterrupt. Call it after the
    session was made, because Spark installs its own handler of Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _frame: object) -> None:
        if stop.is_asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.ask(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def failure_of(text: str) -> QueryFailedError:
    return QueryFailedError(reason_of(text), details(text))


def details(text: str) -> str:
    """Returns the Python traceback and the named causes in Spark's message, without Java's frames and the query's plan. Returns an empty
    text for an error of ours, and for a message with neither, such as one about a query that Spark cannot resolve."""
    if error_in(text) is not None:
        return ""
    lines = [line.rstrip() for line in text.partition(_PLAN)[0].splitlines()]
    kept = [line for line in lines if line and not _JAVA_FRAME.match(line) and not SQL_STATE.fullmatch(line)]
    return "\n".join(kept) if any(_CAUSE in line or line.startswith("Caused by: ") for line in kept) else ""
