"""Runs one node of Apache Kafka with the jars of the Java tests. It keeps its port and its data when it is killed and started again."""

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


class Kafka:
    """A node of Apache Kafka. `start` waits until it answers."""

    def __init__(self, java: Java, directory: Path) -> None:
        self._java = java
        self._directory = directory
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._settings = directory / "server.properties"
        few = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
        self._settings.write_text("\n".join([kafka_settings(str(directory), port, free_port()), *few]))
        subprocess.run(java.command(*FORMAT, str(self._settings)), check=True, capture_output=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._directory / "kafka.log", "a") as log:
            self._process = subprocess.Popen(self._java.command("kafka.Kafka", str(self._settings)), stdout=log, stderr=log)
        eventually(lambda: connected(self.address)).close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stored(self, topic: str) -> bytes:
        """Returns the bytes of the first segment of partition 0."""
        return (self._directory / "data" / f"{topic}-0" / "00000000000000000000.log").read_bytes()


@contextmanager
def running_kafka(java: Java, directory: Path) -> Iterator[tuple[str, Client]]:
    """Runs Apache Kafka with its data in `directory`; yields its address and a client."""
    kafka = Kafka(java, directory)
    try:
        kafka.start()
        with ottla.client.connect(kafka.address) as client:
            yield kafka.address, client
    finally:
        kafka.kill()


def connected(address: str) -> Client | None:
    try:
        return ottla.client.connect(address)
    except ottla.client.ClientError:
        return None
