"""A program whose environment is not activated: Spark's workers run in the `python3` of the PATH, which does not know the format ottla.

A session of the program's own; those of `Pipeline.run` name their interpreter (`test_session.py`). An import before the session changes
the PATH (`tests/spark/test_worker_python.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_jobs.queries import WAIT_S
from tests.spark_jobs.quick_java import SPARK_JAVA

PROGRAM = """
from pyspark.sql import SparkSession

def attempt():
    try:
        session.read.format("ottla").options(subscribee="orders").load()
    except Exception as error:
        print(*[line for line in str(error).splitlines() if "DATA_SOURCE" in line])

session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
attempt()
import ottla.spark
attempt()
print(session.sparkContext.pythonExec)
"""
PYTHON = '#!/bin/sh\nunset PYTHONPATH\nexec {python} -I -S "$@"\n'


@pytest.mark.usefixtures("java")
def test_the_import_registers_the_format_in_a_running_session(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(PYTHON.format(python=sys.executable))
    (programs / "python3").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "JDK_JAVA_OPTIONS": SPARK_JAVA}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    before, after, python = done.stdout.splitlines() or [done.stderr, "", ""]
    assert "DATA_SOURCE_NOT_FOUND" in before
    assert "OptionError: subscribee: no such option; did you mean subscribe?" in after
    assert python == "python3", "other Python functions of the session run where they did"
