"""A test that fails because a Python worker started too slowly is run again, at most three times in all; no other test is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.spark_jobs.conftest import STARTED_TOO_SLOWLY
from tests.tidy.sources import ROOT

TESTS = f"""
from pathlib import Path

def run(name):
    file = Path(__file__).with_name(name)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return len(file.read_text())

def test_slow():
    assert run("slow") > 1, "{STARTED_TOO_SLOWLY}"

def test_always_slow():
    assert not run("always slow"), "{STARTED_TOO_SLOWLY}"

def test_wrong():
    assert not run("wrong"), "another reason"
"""


def test_only_tests_that_were_too_slow_for_spark_are_run_again(tmp_path: Path) -> None:
    folder = tmp_path / "spark_jobs"
    folder.mkdir()
    (folder / "test_tried.py").write_text(TESTS)
    plugins = ["-p", "tests.conftest", "-p", "tests.spark_jobs.conftest"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", *plugins, folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.splitlines()[-1].startswith("2 failed, 1 passed"), done.stdout
    runs = {name: len((folder / name).read_text()) for name in ("slow", "always slow", "wrong")}
    assert runs == {"slow": 2, "always slow": 3, "wrong": 1}
