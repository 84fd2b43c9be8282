"""A missing or unsupported package gives an error of one line that says what to install; environment variables are set, but values of the
user are kept.
"""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from ottla.spark import session
from ottla.spark.errors import MissingRequirementError
from ottla.spark.session import (
    CHECKPOINT_MANAGER,
    INSTALL,
    PROTOBUF,
    REQUIREMENTS,
    SAID_BY_THE_FAILURE,
    UNIX_SOCKETS,
    check_packages,
    check_worker_python,
    is_chosen,
    may_use_unix_sockets,
    prepare_environment,
)

GOOD = {"pyspark": "4.3.0", "pyarrow": "18.0.0", "pandas": "2.2.3"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Fake packages with supported versions, so that the tests do not need the real ones."""
    for name, version in GOOD.items():
        module = types.ModuleType(name)
        setattr(module, "__version__", version)  # noqa: B010
        monkeypatch.setitem(sys.modules, name, module)
    return GOOD


def test_the_first_versions_that_are_enough(installed: dict[str, str]) -> None:
    check_packages()


@pytest.mark.parametrize("name", GOOD)
def test_a_package_that_is_missing(name: str, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingRequirementError) as caught:
        check_packages()
    assert str(caught.value).startswith(f"{name} cannot be imported")
    assert str(caught.value).endswith("pip install 'pyspark>=4.0' 'pyarrow>=18' 'pandas>=2.2,<3' 'protobuf>=6.33.5'")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("pyspark", "3.5.9", "too old, 4.0 or later"),
        ("pyarrow", "17.0.0", "too old, 18 or later"),
        ("pandas", "2.1.4", "too old, 2.2 or later"),
        ("pandas", "3.0.1", "too new, a version before 3"),
    ],
)
def test_a_version_that_does_not_fit(
    name: str, version: str, words: str, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[name], "__version__", version)
    with pytest.raises(MissingRequirementError, match=words):
        check_packages()


def test_the_requirements_are_those_of_the_extra() -> None:
    import tomllib

    from tests.tidy.sources import ROOT

    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    assert INSTALL == "pip install 'pyspark>=4.0' 'pyarrow>=18' 'pandas>=2.2,<3' 'protobuf>=6.33.5'"
    for requirement in (*REQUIREMENTS, PROTOBUF):
        assert str(requirement) in extra


def test_the_extra_has_the_protobuf_that_spark_s_generated_modules_ask_for() -> None:
    """The extra requires the protobuf version of Spark's generated modules. `transformWithState` imports these in the workers, but pyspark
    requires protobuf only in its extra `connect`.
    """
    import importlib.util

    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        pytest.skip("pyspark is not installed")
    generated = list(Path(found.origin).parent.glob("sql/streaming/proto/*_pb2.py"))
    asked = [re.search(r"Protobuf Python Version: (\d+)\.(\d+)\.(\d+)", path.read_text()) for path in generated]
    assert generated
    assert all(one is not None and tuple(map(int, one.groups())) <= PROTOBUF.least for one in asked)


def test_workers_get_this_interpreter_unless_the_user_chose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java_home", lambda _: "/some/java")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    prepare_environment({})
    assert session.os.environ["PYSPARK_PYTHON"] == sys.executable
    assert session.os.environ["JAVA_HOME"] == "/some/java"
    checked: list[str] = []
    monkeypatch.setattr(session, "check_worker_python", checked.append)
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen/python")
    prepare_environment({})
    assert session.os.environ["PYSPARK_PYTHON"] == "/chosen/python"
    prepare_environment({"spark.pyspark.python": "/configured/python"})
    assert session.os.environ["PYSPARK_PYTHON"] == "/configured/python"
    assert checked == ["/chosen/python", "/configured/python"]


def test_an_interpreter_of_the_workers_that_lacks_something_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MissingRequirementError, match=r"PYSPARK_PYTHON: /nowhere/python does not run"):
        check_worker_python("/nowhere/python")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "Traceback ..." >&2\necho "ModuleNotFoundError: No module named \'pyarrow\'" >&2\nexit 1\n')
    python.chmod(0o755)
    with pytest.raises(MissingRequirementError) as caught:
        check_worker_python(str(python))
    assert "and there: ModuleNotFoundError: No module named 'pyarrow'; install Ottla there" in str(caught.value)
    python.write_text("#!/bin/sh\nexit 0\n")
    check_worker_python(str(python))


def test_workers_are_reached_by_unix_sockets_unless_the_user_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert may_use_unix_sockets({"spark.driver.extraJavaOptions": "-Xss4m"})
    assert not may_use_unix_sockets({UNIX_SOCKETS: "false"})
    assert not may_use_unix_sockets({"spark.executor.extraJavaOptions": "-Djava.io.tmpdir=/a/path/that/may/be/too/long"})
    (tmp_path / "spark-defaults.conf").write_text(f"{UNIX_SOCKETS} false\n")
    assert not may_use_unix_sockets({})
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 2g\n")
    assert may_use_unix_sockets({})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir=/elsewhere")
    assert not may_use_unix_sockets({})
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {UNIX_SOCKETS}=false pyspark-shell")
    assert not may_use_unix_sockets({})


@pytest.mark.parametrize(
    ("message", "is_left_out"),
    [
        ("Aborting task", True),
        ("Aborting commit for partition 0 (task 1, attempt 0, stage 1.0)", True),
        ("Aborted commit for partition 0 (task 1, attempt 0, stage 1.0)", True),
        ("Exception in task 0.0 in stage 1.0 (TID 1)", True),
        ("[queryId = ae880] [batchId = 1] Task 0 in stage 1.0 failed 1 times; aborting job", True),
        ("Data source write support MicroBatchWrite[epoch: 1, writer: x] is aborting.", True),
        ("Data source write support MicroBatchWrite[epoch: 1, writer: x] aborted.", True),
        ("Query g2 [id = ae88, runId = e8f5] terminated with error", True),
        ("Exception while deleting local spark dir: /tmp/x", False),
        ("Uncaught exception in thread Thread-4", False),
        ("Lost executor 1 on 10.0.0.7: Command exited with code 137", False),
    ],
)
def test_java_logs_no_error_that_is_reported_anyway_and_all_others(message: str, is_left_out: bool) -> None:
    assert (re.fullmatch(SAID_BY_THE_FAILURE, message) is not None) == is_left_out


def test_a_setting_is_chosen_in_the_settings_or_in_sparks_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert not is_chosen(CHECKPOINT_MANAGER, {})
    assert is_chosen(CHECKPOINT_MANAGER, {CHECKPOINT_MANAGER: "another.Manager"})
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--conf {CHECKPOINT_MANAGER}=another.Manager pyspark-shell")
    assert is_chosen(CHECKPOINT_MANAGER, {})
