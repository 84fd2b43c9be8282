"""Provides Spark's own Kafka connector in a separate environment below `build/`: pyspark 4.0.0, and the connector's jars by Maven.

4.0.0 is the newest version with all artifacts published. The first process that needs the environment makes it. If two processes make it at
the same time, the process that finishes first renames its own directory into place. It contains neither `ottla` nor pytest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.maven import copy_artifacts

SPARK_VERSION = "4.0.0"
PACKAGES = (f"pyspark=={SPARK_VERSION}", "py4j==0.10.9.9")
CONNECTOR = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION)
IN_SPARK = (
    "org.apache.hadoop",
    "org.scala-lang",
    "org.scala-lang.modules",
    "org.slf4j",
    "org.lz4",
    "org.xerial.snappy",
    "com.github.luben",
)
"""Maven groups whose jars pyspark already has."""

HOME = Path(__file__).resolve().parents[1] / "build" / "spark-connector"


def python_program() -> str:
    """Returns the interpreter of the environment. Makes the environment if it does not exist."""
    digest = hashlib.sha256(repr((PACKAGES, CONNECTOR, IN_SPARK, sys.version_info[:2])).encode()).hexdigest()[:16]
    there = HOME / digest
    if not there.is_dir():
        HOME.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=HOME))
        _make(making)
        try:
            os.rename(making, there)
        except OSError:
            shutil.rmtree(making)  # another process was faster
    return str(there / "bin" / "python")


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, *PACKAGES], check=True)
    where = "import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), 'jars'))"
    jars = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    copy_artifacts(folder / "pom", [CONNECTOR], library=Path(jars), without_groups=IN_SPARK)


def environment() -> dict[str, str]:
    """Returns the environment variables for a program of the environment, without those of this interpreter."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "VIRTUAL_ENV")}
    return {**kept, "PYSPARK_PYTHON": python_program()}
