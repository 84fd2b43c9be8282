"""The example of a Spark Declarative Pipeline, run by `spark-pipelines` with another storage, and proved from the log."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ottla.client
from ottla.client import TopicPartition
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.spark_jobs.quick_java import SPARK_JAVA
from tests.tidy.sources import ROOT

EXAMPLE = ROOT / "examples" / "declarative"
RUN_SECONDS_MAX = 500


@pytest.mark.night
@pytest.mark.timeout(2 * RUN_SECONDS_MAX)
def test_the_example_copies_each_record_once(java: str, tmp_path: Path) -> None:
    project = shutil.copytree(EXAMPLE, tmp_path / "project")
    spec = project / "spark-pipeline.yml"
    spec.write_text(re.sub(r"(?m)^storage: .*$", f"storage: {(tmp_path / 'storage').as_uri()}", spec.read_text()))
    program = Path(sys.executable).with_name("spark-pipelines")
    with Broker(topics=["words:2", "loud-words:2"]) as broker, ottla.client.connect(broker.get_bootstrap_server()) as client:
        with client.producer() as producer:
            for number in range(50):
                producer.produce("words", b"word %d" % number, key=b"%d" % number)
        environment = {
            **os.environ,
            "JDK_JAVA_OPTIONS": SPARK_JAVA,
            "KAFKA_BOOTSTRAP_SERVERS": broker.get_bootstrap_server(),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": _pyspark_folder(),
        }
        done = subprocess.run(
            [program, "run"], cwd=project, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        found = verify(client, "declared-words", ["loud-words"])
        assert found.is_proved and found.rows == 50, found
        values = {
            record.value
            for partition in (TopicPartition("loud-words", number) for number in range(2))
            for fetched in client.fetch({partition: 0})
            for record in fetched.records()
        }
    assert values == {b"WORD %d" % number for number in range(50)}


def _pyspark_folder() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)
