"""What local mode cannot show: task retries, a killed executor, stages that run again beside stragglers of their first run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.queries import lag, stock_values, write_numbers

PROGRAM = Path(__file__).with_name("straggler_program.py")
PROGRAM_SECONDS = 300
pytestmark = pytest.mark.timeout(600)


def spark_home(directory: Path) -> Path:
    """PySpark's own folder by way of links, so that what the workers write stays out of the installation."""
    import pyspark

    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (directory / entry.name).symlink_to(entry)
    return directory


def test_failing_dying_and_straggling_tasks_change_nothing(java: str, broker: Broker, tmp_path: Path) -> None:
    source, sink = broker.create_topic("cluster-in", partitions=3), broker.create_topic("cluster-out", partitions=4)
    write_numbers(broker, source, range(4000))
    notes = tmp_path / "notes"
    notes.mkdir()
    environment = {**os.environ, "SPARK_HOME": str(spark_home(tmp_path / "spark")), "PYSPARK_PYTHON": sys.executable}
    arguments = [broker.direct_server, source, sink, str(tmp_path / "checkpoint"), str(notes)]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert stock_values(broker, sink) == list(range(4000))
    assert lag(broker, f"g-{sink}", source) == 0
    attempts = Counter(path.name.rsplit("-", 1)[0] for path in notes.glob("attempt-*"))
    assert (notes / "failed").exists() and attempts["attempt-1-0"] >= 2
    assert (notes / "killed").exists() and attempts["attempt-2-0"] >= 2
    assert attempts["attempt-2-1"] >= 2, "two attempts of a task that had not failed ran side by side"
    assert (notes / "worker-killed").exists() and attempts["attempt-3-0"] >= 2
