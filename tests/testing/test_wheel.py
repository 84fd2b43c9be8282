"""The wheel, and README's first lines in an empty environment: the program runs, and tests find the fixtures without configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from ottla._version import __version__
from tests.docs.pages import blocks_of

ROOT = Path(__file__).resolve().parents[2]

PROJECT = """
def test_it(kafka_broker, kafka_topic):
    kafka_broker.add_record(kafka_topic, "from an empty project")
    assert [record.value for record in kafka_broker.records(kafka_topic)] == [b"from an empty project"]

def test_a_consumer(kafka_broker, kafka_topic):
    kafka_broker.add_record(kafka_topic, "x")
    consumer = kafka_broker.consumer(kafka_topic)
    while not (batches := consumer.poll(1)):
        pass
    assert [record.value for record in batches[0].records()] == [b"x"]
    consumer.close()
"""


def done(command: list[str], directory: Path) -> str:
    """Runs a command in a directory and environment without this source tree; returns its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_", "OTTLA_", "KAFKA_", "VIRTUAL_"))}
    finished = subprocess.run(command, cwd=directory, env=kept, capture_output=True, text=True, timeout=300, check=False)
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


def test_the_readme_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Its first command, its first test and the command that runs the test, as a reader copies them."""
    blocks = [block for block in blocks_of(ROOT / "README.md") if block.language in ("sh", "python")]
    install, example = blocks[0].text, blocks[1].text
    command = re.search(r"`(pytest (\S+\.py))`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert install.startswith("pip install") and example.startswith("def test_") and command is not None
    environment, project = tmp_path / "environment", tmp_path / "project"
    venv.create(environment, with_pip=True)
    project.mkdir()
    (project / command[2]).write_text(example)
    settings = "PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PIP_NO_COMPILE=0"  # 0 is pip's word for --no-compile: most modules stay unused
    activated = f"export PATH={environment / 'bin'}:$PATH {settings}; "
    done(["sh", "-ec", activated + install], ROOT)
    assert "1 passed" in done(["sh", "-ec", activated + command[1]], project)
    assert done(["sh", "-ec", activated + "ottla --version"], project).split() == ["ottla", __version__]
    packages = done(["sh", "-ec", activated + "python -c 'import ottla; print(ottla.__path__[0])'"], project)
    assert packages.startswith(str(environment))
    (project / "test_more.py").write_text(PROJECT)
    assert "3 passed" in done(["sh", "-ec", activated + "pytest -q -W error"], project)
