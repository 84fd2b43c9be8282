"""Helpers for tests of dead letters: members of share groups that reject records, and functions that read the dead-letter topic."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as StockPartition

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer as OwnShareConsumer
from ottla.client.core.admin import GROUP_RESOURCE, LATEST, OffsetAt, alter_configs, list_offsets
from ottla.client.core.share_admin import share_offsets
from ottla.client.core.share_session import ACCEPT, REJECT
from ottla.client.errors import ClientError

GROUP, TOPIC, DLQ = "g", "t", "dlq.t"


class Letter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


def prepare_group(address: str, records: int, **settings: str) -> None:
    """Writes records to the topic, and makes a group with a dead-letter topic."""
    changes = {
        "share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000",
        "errors.deadletterqueue.topic.name": DLQ, "errors.deadletterqueue.copy.record.enable": "true", **settings,
    }  # fmt: skip
    with Cluster(address) as cluster:
        alter_configs(cluster, GROUP_RESOURCE, GROUP, changes=changes)
        with Producer(cluster) as producer:
            for number in range(records):
                producer.produce(TOPIC, b"v%d" % number, key=b"k%d" % number, headers=[("trace", b"%d" % number)])
            producer.flush()


def is_done(address: str) -> bool:
    """Whether the group has completed all records."""
    try:
        with Cluster(address) as cluster:
            return share_offsets(cluster, GROUP)[TopicPartition(TOPIC, 0)].lag == 0
    except (ApiError, ClientError):
        return False


def letter_count(address: str) -> int:
    """Returns the number of records in the dead-letter topic's only partition; 0 while the broker does not answer."""
    place = TopicPartition(DLQ, 0)
    try:
        with Cluster(address) as cluster:
            found = list_offsets(cluster, {place: LATEST})[place]
    except (ApiError, ClientError):
        return 0
    return found.offset if isinstance(found, OffsetAt) else 0


def letters(address: str) -> list[Letter]:
    """Returns all records of the dead-letter topic's only partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "letters", "enable.auto.commit": False})
    try:
        place = StockPartition(DLQ, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([place])
        found: list[Letter] = []
        while len(found) < end:
            for message in consumer.consume(end - len(found), timeout=1):
                assert message.error() is None, message.error()
                headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
                found.append(Letter(message.key(), message.value(), headers))
        return found
    finally:
        consumer.close()


class Rejecting:
    """A member that rejects even values and accepts odd ones, and continues after crashes of a broker."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.is_over = False
        self.seen = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            with (
                suppress(ApiError, ClientError), Cluster(self._address) as cluster,
                OwnShareConsumer(cluster, GROUP, is_explicit=True, records_max=20) as consumer,
            ):  # fmt: skip
                consumer.subscribe([TOPIC])
                while not self.is_over:
                    for one in consumer.poll(0.2):
                        self.seen += 1
                        consumer.acknowledge(one, ACCEPT if int((one.record.value or b"")[1:]) % 2 else REJECT)
            time.sleep(0.1)
