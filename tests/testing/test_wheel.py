"""The built wheel in an empty environment: the program runs, and an empty project's tests find the fixtures without configuration."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from ottla._version import __version__

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
def test_it(kafka_broker, kafka_topic):
    kafka_broker.add_record(kafka_topic, "from an empty project")
    assert [record.value for record in kafka_broker.records(kafka_topic)] == [b"from an empty project"]

def test_no_client_is_there(kafka_broker):
    try:
        kafka_broker.producer()
    except RuntimeError as error:
        assert "pip install" in str(error)
    else:
        raise AssertionError("a client in an empty environment")
"""


def done(command: list[str], directory: Path) -> str:
    """Runs a command in a directory and environment without this source tree; returns its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_", "OTTLA_", "KAFKA_", "VIRTUAL_"))}
    finished = subprocess.run(command, cwd=directory, env=kept, capture_output=True, text=True, timeout=150, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    done([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)], ROOT)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_is_pure_and_whole(wheel: Path) -> None:
    assert wheel.name == f"ottla-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {path.relative_to(ROOT).as_posix() for package in ("ottla", "pyspark_ottla") for path in (ROOT / package).rglob("*.py")}
    assert sources <= names
    assert not [name for name in names if name.startswith(("tests/", "tools/"))]


def test_an_empty_environment_gets_a_broker_and_its_fixtures(wheel: Path, tmp_path: Path) -> None:
    environment, project = tmp_path / "environment", tmp_path / "project"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    done([*install, str(wheel), "pytest"], tmp_path)
    assert done([str(environment / "bin" / "ottla"), "--version"], tmp_path).split() == ["ottla", __version__]
    packages = done([str(python), "-c", "import ottla, sys; print(ottla.__path__[0], 'confluent_kafka' in sys.modules)"], tmp_path)
    assert packages.startswith(str(environment))
    project.mkdir()
    (project / "test_it.py").write_text(PROJECT)
    assert "2 passed" in done([str(python), "-m", "pytest", "-q", "-W", "error"], project)
