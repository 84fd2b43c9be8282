"""Spark searches for sources in Python once a process; where that has failed, the sessions of pipelines know the format all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_jobs.quick_java import SPARK_JAVA

PROGRAM = """
from pyspark.errors import PySparkException
from ottla.spark.session import build_session

session = build_session("without-search", master="local[1]")
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "500", "subscribe": "t"}
try:
    session.read.format("ottla").options(**options).load()
except PySparkException as error:
    print(error)
session.stop()
"""
PYTHON = """#!/bin/sh
case "$*" in *lookup_data_sources*) exit 1 ;; esac
exec {python} "$@"
"""


@pytest.mark.usefixtures("java")
def test_a_worker_that_dies_in_the_search_does_not_hide_the_format(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "JDK_JAVA_OPTIONS": SPARK_JAVA}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert "kafka.bootstrap.servers=127.0.0.1:1: cannot reach 127.0.0.1:1" in done.stdout, done.stdout + done.stderr
