"""Options that shorten the start of the JVMs in these tests, because most of them run for less than a minute. Without its second compiler
and its parallel collector a JVM is faster on few cores. An archive of Spark's loaded and verified classes (class data sharing, JEP 350)
halves the CPU time of a start. It is made once for each version of Spark and of Java. A JVM that does not find the archive, or cannot use
it, starts without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.once import one_at_a_time

ROOT = Path(__file__).resolve().parents[2]
MAKING_SECONDS_MAX = 180
"""On a machine too busy for it the tests go without an archive. `TEST_SECONDS_MAX` covers this and the start of a session."""
TEST_SECONDS_MAX = 1200
"""Time limit of a test that has none of its own."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For any program in Java."""

PROGRAM = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
session = builder.getOrCreate()
numbers = session.range(1000).selectExpr("id", "cast(id AS string) AS name", "id % 7 AS part")
numbers.groupBy("part").count().collect()
numbers.mapInArrow(lambda batches: batches, numbers.schema).write.format("noop").mode("overwrite").save()
stream = session.readStream.format("rate").load().writeStream.format("noop").trigger(availableNow=True)
stream.start().awaitTermination()
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def _archive() -> Path | None:
    """Returns the path of the archive for this Spark and this Java; None if Spark or Java is missing, or if an option cannot contain the
    path.
    """
    java = shutil.which("java")
    if java is None or " " in str(ROOT):
        return None
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        return None
    digest = hashlib.sha256(os.path.realpath(java).encode()).hexdigest()[:8]
    return ROOT / "build" / "spark" / f"classes-{spark}-{digest}.jsa"


ARCHIVE = _archive()
SPARK_JAVA = QUICK_JAVA if ARCHIVE is None else f"{QUICK_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:disable"
"""For Spark's programs."""


def make_archive(settings: dict[str, str]) -> None:
    """Runs a session with these settings, and a few queries, whose JVM writes the archive at its end."""
    if ARCHIVE is None or ARCHIVE.exists():
        return
    with one_at_a_time(ARCHIVE.parent) as has_waited, tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        if has_waited:
            return
        made = Path(folder, "classes.jsa")
        options = {
            **settings, "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={made} -Xlog:disable",
            "spark.sql.warehouse.dir": folder, "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
        }  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, *(f"{name}={value}" for name, value in options.items())]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=MAKING_SECONDS_MAX, check=False)
        if made.exists():
            os.replace(made, ARCHIVE)
