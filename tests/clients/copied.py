"""Tests a transactional copy while processes are killed: `Feed` writes numbers to a source topic, `Worker` is the process that copies them,
and functions check the output.

The copier doubles the numbers of one topic into another (`copying.py`).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.client
from ottla.client import ClientError
from tests.clients.broker_process import ROOT
from tests.clients.copying import PATIENT

PARTITIONS = 3
SECONDS = 120
PAUSE_SECONDS = 0.02
"""Between 20 numbers of a feed and the next 20: a copier is always at work, and has little left to copy after the last kill."""


def make_topics(address: str, *names: str, replicas: int = 1) -> None:
    with AdminClient({"bootstrap.servers": address, "log_level": 0}) as admin:
        for future in admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in names]).values():
            future.result(SECONDS)


def fill(address: str, source: str, numbers: range) -> None:
    client = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in numbers:
        client.produce(source, b"%d" % number, partition=number % PARTITIONS)
    assert client.flush(SECONDS) == 0


def read_all(address: str, topic: str, isolation: str) -> dict[int, list[Message]]:
    """Reads every partition from its beginning to its end."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, "isolation.level": isolation}
    found: dict[int, list[Message]] = {partition: [] for partition in range(PARTITIONS)}
    ends: set[int] = set()
    deadline = time.monotonic() + 60
    with closing(Consumer(settings)) as client:
        client.assign([TopicPartition(topic, partition, 0) for partition in found])
        while len(ends) < len(found):
            assert time.monotonic() < deadline, "the end of the topic does not come"
            for message in client.consume(5000, 0.2):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends.add(message.partition())
    return found


def committed(address: str, group: str) -> int:
    """Returns how many records the group has committed in all partitions; -1 while that is not known. It uses Ottla's client, because
    librdkafka's admin client hangs or crashes if it asks for the offsets of a group while the coordinator moves.
    """
    try:
        with ottla.client.connect(address) as client:
            return sum(found.offset for found in client.committed(group, require_stable=False).values())
    except ClientError:
        return -1


def is_in_sync(address: str) -> bool:
    """Whether all replicas of all partitions are in sync."""
    with ottla.client.connect(address) as client:
        topics = [client.describe_topic(name) for name in client.topics()]
    return all(len(one.in_sync_replicas) == len(one.replicas) for topic in topics for one in topic.partitions)


def numbers_in(address: str, topic: str, isolation: str = "read_committed") -> dict[int, list[int]]:
    return {partition: [int(message.value()) for message in found] for partition, found in read_all(address, topic, isolation).items()}


def doubled(count: int) -> dict[int, list[int]]:
    return {partition: [2 * number for number in range(partition, count, PARTITIONS)] for partition in range(PARTITIONS)}


class Worker:
    """The transactional copier as a process."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.command = [sys.executable, "-m", "tests.clients.copying", *arguments]
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def crash(self) -> None:
        self.kill()
        self.start()


class Feed:
    """Writes numbers to the source topic while processes are killed. Its producer retries, and writes each number once."""

    def __init__(self, address: str, topic: str) -> None:
        self.count = 0
        self.errors: list[Any] = []
        self._topic = topic
        self._is_stopping = threading.Event()
        self._client = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **PATIENT})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.wait(PAUSE_SECONDS):
            for number in range(self.count, self.count + 20):
                self._client.produce(self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            self.count += 20
            self._client.poll(0)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.errors.append(error)

    def stop(self) -> int:
        """Stops writing, and returns the number of written numbers."""
        self._is_stopping.set()
        self._thread.join()
        assert self._client.flush(60) == 0 and not self.errors, self.errors[:1]
        return self.count


def consumed(admin: AdminClient, group: str) -> int:
    """Returns the group's progress in records; -1 while that is not known."""
    try:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=2)[group].result(5)
    except (KafkaException, TimeoutError):  # the broker cannot be reached
        return -1
    return sum(max(one.offset, 0) for one in found.topic_partitions if one.error is None)
