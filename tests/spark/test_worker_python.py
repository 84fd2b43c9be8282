"""The Python of Spark's workers: which one Spark starts, and which one the import of `ottla.spark` lets it start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark import worker_python
from ottla.spark.worker_python import is_this_python, prefer_this_python, what_is_missing

OWN = os.path.dirname(sys.executable)


@pytest.fixture
def other(tmp_path: Path) -> str:
    """A directory with the `python3` of another environment, in which nothing is installed."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    return str(tmp_path)


def test_the_import_goes_before_another_python3_and_no_further(other: str) -> None:
    environ = {"PATH": other, "HOME": "/h"}
    assert worker_python.worker_python(environ) == f"{other}/python3"
    prefer_this_python(environ)
    assert environ == {"PATH": f"{OWN}{os.pathsep}{other}", "HOME": "/h"}, "no PYSPARK_PYTHON, which executors on other machines would get"
    assert is_this_python(worker_python.worker_python(environ))
    prefer_this_python(environ)
    assert environ["PATH"] == f"{OWN}{os.pathsep}{other}"


def test_the_import_happens_in_a_program(other: str) -> None:
    program = "import os, shutil; import ottla.spark; print(shutil.which('python3'), 'PYSPARK_PYTHON' in os.environ)"
    environment = {name: value for name, value in os.environ.items() if name not in worker_python.CHOICES} | {"PATH": other}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [f"{OWN}/python3", "False"], done.stderr


@pytest.mark.parametrize("name", worker_python.CHOICES)
def test_an_interpreter_that_the_user_has_chosen_is_kept(other: str, name: str) -> None:
    environ = {"PATH": other, name: "/chosen/python"}
    prefer_this_python(environ)
    assert environ == {"PATH": other, name: "/chosen/python"}
    assert worker_python.worker_python(environ) == "/chosen/python"


def test_the_driver_s_choice_goes_before_that_of_the_workers() -> None:
    """So does Spark: it also starts the driver's processes for planning with PYSPARK_DRIVER_PYTHON."""
    assert worker_python.worker_python({"PYSPARK_PYTHON": "/a/python", "PYSPARK_DRIVER_PYTHON": "/b/jupyter"}) == "/b/jupyter"


def test_a_directory_whose_python3_is_of_another_version_is_not_put_first(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_python.sys, "executable", f"{other}/python3.99")
    environ = {"PATH": "/nowhere"}
    prefer_this_python(environ)
    assert environ == {"PATH": "/nowhere"}


def test_what_an_interpreter_lacks(other: str) -> None:
    assert what_is_missing(f"{other}/python3") == "has no pyspark_ottla, ottla, pyarrow"
    assert what_is_missing("/bin/true") == "is no Python"
    assert what_is_missing("/nowhere/jupyter").startswith("does not run")
