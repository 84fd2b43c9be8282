"""Apache Kafka as a process, with the jars of the Java tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ottla.client
from ottla.client import Client
from tests.clients.broker_process import eventually
from tests.clients.java_program import Java
from tools.bench.brokers import free_port, kafka_settings

FORMAT = ("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAg", "-c")
FEW_PARTITIONS = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")


@contextmanager
def running_kafka(java: Java, directory: Path) -> Iterator[tuple[str, Client]]:
    """Yields the address of a broker that serves, and a client of it."""
    port = free_port()
    settings = directory / "server.properties"
    settings.write_text("\n".join([kafka_settings(str(directory), port, free_port()), *FEW_PARTITIONS]))
    subprocess.run(java.command(*FORMAT, str(settings)), check=True, capture_output=True)
    with open(directory / "kafka.log", "w") as log:
        process = subprocess.Popen(java.command("kafka.Kafka", str(settings)), stdout=log, stderr=log)
    address = f"127.0.0.1:{port}"
    try:
        with eventually(lambda: _connected(address)) as client:
            yield address, client
    finally:
        process.kill()
        process.wait()


def _connected(address: str) -> Client | None:
    try:
        return ottla.client.connect(address)
    except ottla.client.ClientError:
        return None
