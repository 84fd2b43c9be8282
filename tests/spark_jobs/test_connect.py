"""Source and sink under Spark Connect: the client is a process without Java, the plans run in the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker import Broker
from tests.spark_jobs.features_page import FeaturesPage, examples
from tests.spark_jobs.queries import WAIT_S, stock_values, write_numbers

pytest.importorskip("grpc")

PROGRAM = Path(__file__).with_name("connect_program.py")


def test_a_client_of_spark_connect_reads_and_writes(spark: Any, broker: Broker, tmp_path: Path) -> None:
    page = FeaturesPage(broker, tmp_path, "connect")
    source, sink, copy = page.topic(), page.topic("-sink"), page.topic("-connected")
    write_numbers(broker, source, range(50))
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    port = getattr(getattr(spark.sparkContext._jvm, service), "MODULE$").localPort()
    server = f"sc://127.0.0.1:{port}"
    example = page.moved(examples()["Spark Connect"]).replace("sc://localhost:15002", server)
    arguments = [server, broker.direct_server, source, sink, example]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["values"] == list(range(50))
    assert "subscribe: UNKNOWN_TOPIC_OR_PARTITION: topic 'no-such-topic' not found" in found["message"]
    assert stock_values(broker, sink) == stock_values(broker, copy) == list(range(50))
