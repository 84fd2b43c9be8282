"""Pipelines run until they end, fail or are stopped. The tests use fake queries that they advance themselves."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.errors import OptionError, QueryFailedError, reason_of
from ottla.spark.pipeline import Pipeline
from ottla.spark.runner import StopRequest, failure_of, run_pipelines, stop_query
from ottla.spark.state_file import FAILED, STOPPED, load_state
from ottla.spark.tables.table import Table


class Query:
    """A query that runs until it is stopped or `ends` is set."""

    id = "7f0c"
    lastProgress: dict[str, Any] = {"batchId": 0, "timestamp": "t", "numInputRows": 5, "durationMs": {"addBatch": 1}}
    recentProgress: list[dict[str, Any]] = [lastProgress]

    def __init__(self, ends: Callable[[], bool] = lambda: False, error: str | None = None) -> None:
        self._ends, self._error = ends, error
        self.was_stopped = False
        self.triggers = 0

    @property
    def isActive(self) -> bool:
        return not self.was_stopped and not self._ends()

    @property
    def status(self) -> dict[str, bool]:
        self.triggers -= 1
        return {"isTriggerActive": self.triggers > 0}

    def exception(self) -> str | None:
        return None if self.isActive else self._error

    def stop(self) -> None:
        self.was_stopped = True


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Query], Pipeline]:
    queries: dict[str, Query] = {}
    monkeypatch.setattr(Pipeline, "start", lambda pipeline, _: queries[pipeline.group])

    def make(group: str, query: Query) -> Pipeline:
        queries[group] = query
        checkpoint = str(tmp_path / group)
        return Pipeline(group=group, source="a", sink="b", transform=print, bootstrap="127.0.0.1:1", checkpoint=checkpoint)

    return make


def test_a_query_that_ends_by_itself_is_the_end(made: Any, tmp_path: Path) -> None:
    pipeline = made("ends", Query(ends=lambda: True))
    (state,) = run_pipelines([pipeline], session=object(), metrics_file=tmp_path / "pipeline.prom")
    assert (state.state, state.rows_in) == (STOPPED, 5)
    assert load_state(pipeline.state_file) == state
    assert 'ottla_pipeline_up{group="ends"} 0.0' in (tmp_path / "pipeline.prom").read_text()


def test_a_notebook_shows_the_progress_on_reason_of(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter's kernel replaces the standard streams by its own class."""
    cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr(sys, "stderr", cell)
    run_pipelines([made("ends", Query(ends=lambda: True)), made("too", Query(ends=lambda: True))], session=object())
    lines = cell.getvalue().split("\r")
    assert lines[1].startswith("ends: running, 0 batches, ") and "\n" not in "".join(lines[:-1])
    assert lines[-1].rstrip(" \n") == "ends: stopped, 0 batches, 5 rows in, 0 out, lag 0 | too: stopped, 0 batches, 5 rows in, 0 out, lag 0"
    assert lines[-1].endswith("\n") and "\x1b" not in cell.getvalue()


def test_a_program_outside_of_a_notebook_shows_nothing(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run_pipelines([made("ends", Query(ends=lambda: True))], session=object())
    assert capsys.readouterr().err == ""


def test_a_watch_gets_the_states_again_and_again_and_the_last_ones(made: Any) -> None:
    looks = []
    pipelines = [made("ends", Query(ends=lambda: len(looks) >= 3)), made("too", Query(ends=lambda: True))]
    run_pipelines(pipelines, session=object(), watch=lambda states, is_last: looks.append(([one.state for one in states], is_last)))
    assert len(looks) >= 4 and looks[0] == (["running", "running"], False)
    assert looks[-1] == (["stopped", "stopped"], True)
    assert not any(is_last for _, is_last in looks[:-1])


def test_when_one_fails_the_others_are_stopped(made: Any) -> None:
    failed, other = Query(ends=lambda: True, error="x.y.SomeError: no room"), Query()
    pipelines = [made("fails", failed), made("other", other)]
    with pytest.raises(QueryFailedError, match=r"^SomeError: no room$"):
        run_pipelines(pipelines, session=object())
    assert other.was_stopped
    states = [load_state(pipeline.state_file) for pipeline in pipelines]
    assert [(state.state, state.error) for state in states if state] == [(FAILED, "SomeError: no room"), (STOPPED, "")]


def test_a_pipeline_that_does_not_start_stops_those_before_it(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    pipelines = [made("one", query), made("two", Query())]
    start = Pipeline.start

    def fail_second(pipeline: Pipeline, session: Any) -> Any:
        if pipeline.group == "two":
            raise OptionError("topic 'a' does not exist")
        return start(pipeline, session)

    monkeypatch.setattr(Pipeline, "start", fail_second)
    with pytest.raises(OptionError):
        run_pipelines(pipelines, session=object())
    assert query.was_stopped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_handlers_are_put_back(made: Any, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    query, stop = Query(), StopRequest()
    threading.Timer(0.1, signal.raise_signal, [number]).start()
    (state,) = run_pipelines([made("stopped", query)], session=object(), stop=stop)
    assert query.was_stopped and state.state == STOPPED
    assert stop.signal_number == number
    assert signal.getsignal(number) is before


def test_a_query_that_fails_while_it_is_stopped_was_stopped(made: Any) -> None:
    stop = StopRequest()
    stop.ask()
    query = Query(error="java.lang.InterruptedException: stopped")
    (state,) = run_pipelines([made("interrupted", query)], session=object(), stop=stop)
    assert (state.state, state.error) == (STOPPED, "")


def test_a_spark_that_refuses_the_query_is_reason_of(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class SparkError(Exception):
        pass

    def refuse(*_: Any) -> None:
        raise SparkError("[UNRESOLVED_COLUMN] no column `valeu`\n'Project ['valeu]")

    pipeline = made("refused", Query())
    monkeypatch.setattr("ottla.spark.runner.spark_errors", lambda: (SparkError,))
    monkeypatch.setattr(Pipeline, "start", refuse)
    with pytest.raises(QueryFailedError, match=r"^\[UNRESOLVED_COLUMN\] no column `valeu`$"):
        run_pipelines([pipeline], session=object())


def test_a_java_process_that_is_gone_is_a_failure_of_the_query(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class GoneQuery(Query):
        @property
        def isActive(self) -> bool:
            raise ConnectionRefusedError("[Errno 111] Connection refused")

    monkeypatch.setattr("ottla.spark.runner.spark_errors", lambda: (ConnectionError,))
    pipeline = made("gone", GoneQuery())
    with pytest.raises(QueryFailedError, match="Connection refused"):
        run_pipelines([pipeline], session=object())
    state = load_state(pipeline.state_file)
    assert state is not None and state.state == FAILED


def test_a_stop_waits_for_the_batch_but_not_for_ever() -> None:
    query = Query()
    query.triggers = 3
    stop_query(query)
    assert query.was_stopped and query.triggers <= 0
    query = Query()
    query.triggers = 10**9
    stop_query(query, batch_s=0.01)
    assert query.was_stopped and query.triggers > 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "the query failed without a message"),
        ("plain words", "plain words"),
        (
            "[STREAM_FAILED] Query [id = 7] terminated with exception: Job aborted.\n=== Streaming Query ===\nCurrent State: ACTIVE",
            "[STREAM_FAILED] Query [id = 7] terminated with exception: Job aborted.",
        ),
        (
            "Traceback (most recent call last):\n  File \"x.py\", line 3, in commit\nottla.spark.errors.OutputError: topic: null in row 7\n"
            "\tat org.apache.spark.X.y(X.scala:1)\norg.apache.spark.SparkException: Job aborted",
            "OutputError: topic: null in row 7",
        ),
        (
            "[STREAM_FAILED] Query terminated: [PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance commits: "
            "ottla.spark.errors.OffsetConflictError: group: batch 3 and 'g' disagree SQLSTATE: 38000\n=== Streaming Query ===",
            "OffsetConflictError: group: batch 3 and 'g' disagree",
        ),
        ("Traceback ...\n  File \"x.py\", line 3\nValueError: bad\n\tat org.apache.X", "ValueError: bad"),
    ],
)
def test_the_line_that_says_why(text: str, line: str) -> None:
    assert reason_of(text) == line


def test_the_traceback_of_the_user_s_code_goes_with_the_line() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: An exception was thrown from the worker: Traceback (most recent call last):"
        '\n  File "x.py", line 3, in broken\n    raise ValueError("bad")\nValueError: bad\n SQLSTATE: 38000\n'
        "\tat org.apache.X$Y.z(X.scala:1)\n\t... 12 more\nCaused by: java.io.IOException: no room\n\n"
        "=== Streaming Query ===\nIdentifier: [id = 7]"
    )
    failed = failure_of(text)
    assert str(failed) == "ValueError: bad"
    assert failed.details.splitlines()[1:] == [
        '  File "x.py", line 3, in broken', '    raise ValueError("bad")', "ValueError: bad", "Caused by: java.io.IOException: no room",
    ]  # fmt: skip
    assert failure_of("Traceback ...\n  File x\nottla.spark.errors.OutputError: topic: null").details == ""
    assert failure_of("one line").details == ""


def test_the_plan_of_a_query_with_a_typo_is_left_out() -> None:
    line = "[UNRESOLVED_COLUMN] no column `kye`. SQLSTATE: 42703; line 1 pos 0;"
    failed = failure_of(f"{line}\n'Project ['kye]\n+- ~StreamingRelation ottla\n")
    assert str(failed) == line
    assert failed.details == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": ""}, "group is empty"),
        ({"source": ()}, "source is empty"),
        ({"output_mode": "often"}, "output_mode 'often' is none of"),
        ({"transform": None}, "transform is not a function"),
    ],
)
def test_a_pipeline_without_what_it_needs(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Pipeline(**{"group": "g", "source": "a", "sink": "b", "transform": print, **changes})


def test_topics_may_be_given_in_several_ways() -> None:
    pipeline = Pipeline(group="g", source="a, b", sink=["c", "d"], transform=print)
    assert (pipeline.sources, pipeline.sinks) == (["a", "b"], ["c", "d"])
    assert pipeline.checkpoint_location == str(Path("checkpoints/g").absolute())
    assert pipeline.query_name == "g"


def test_dead_letters_are_among_the_topics_that_a_pipeline_writes() -> None:
    typed = {"VALUEFORMAT": "avro", "Errors": "dead"}
    pipeline = Pipeline(group="g", source="a", sink="b", transform=print, source_options=typed)
    assert (pipeline.dead_letter_topic, pipeline.sinks) == ("dead", ["b", "dead"])
    for options in ({"valueFormat": "avro"}, {"errors": "dead"}, {**typed, "Errors": "NULL"}, {**typed, "Errors": "fail"}):
        pipeline = Pipeline(group="g", source="a", sink="b", transform=print, source_options=options)
        assert (pipeline.dead_letter_topic, pipeline.sinks) == ("", ["b"])
    with pytest.raises(OptionError, match="source_options: errors with a topic is for sinks that are topics"):
        Pipeline(group="g", source="a", sink=Table("t"), transform=print, source_options=typed)
