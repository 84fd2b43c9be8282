"""Dead letters of share groups on real brokers: consumers reject records, brokers are killed, and the dead-letter topic has each one."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer
from confluent_kafka import TopicPartition as StockPartition

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer as OwnShareConsumer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs, create_topic
from ottla.client.core.share_admin import share_offsets
from ottla.client.core.share_session import ACCEPT, REJECT
from ottla.client.errors import ClientError
from tests.clients.broker_process import BrokerProcess, eventually

SETTINGS = (
    "errors.deadletterqueue.auto.create.topics.enable=true",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.max.delivery.count.limit=25",
    "share.coordinator.state.topic.num.partitions=3",
    "offsets.topic.num.partitions=3",
    "ottla.log.format=text",
)
GROUP, TOPIC, DLQ = "g", "t", "dlq.t"
CRASHES = 3
RECORDS = 400


class Letter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", SETTINGS).start()
    yield process
    process.stop()


def prepare(broker: BrokerProcess, records: int, **settings: str) -> None:
    """A topic with records, and a group with a dead-letter topic that does not exist yet."""
    changes = {
        "share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000",
        "errors.deadletterqueue.topic.name": DLQ, "errors.deadletterqueue.copy.record.enable": "true", **settings,
    }  # fmt: skip
    with Cluster(broker.address) as cluster:
        create_topic(cluster, TOPIC, partitions=1)
        alter_configs(cluster, GROUP_RESOURCE, GROUP, changes=changes)
        with Producer(cluster) as producer:
            for number in range(records):
                producer.produce(TOPIC, b"v%d" % number, key=b"k%d" % number, headers=[("trace", b"%d" % number)])
            producer.flush()


def is_done(broker: BrokerProcess) -> bool:
    """Whether the group has dealt with each record."""
    try:
        with Cluster(broker.address) as cluster:
            return share_offsets(cluster, GROUP)[TopicPartition(TOPIC, 0)].lag == 0
    except (ApiError, ClientError):
        return False


def letters(broker: BrokerProcess) -> list[Letter]:
    """All records of the dead-letter topic's only partition."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "letters", "enable.auto.commit": False})
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


def test_librdkafka_rejects_and_the_copy_has_the_record_and_its_context(own_broker: BrokerProcess) -> None:
    prepare(own_broker, 3)
    settings = {"bootstrap.servers": own_broker.address, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([TOPIC])
        given = []
        while len(given) < 3:
            given += consumer.poll(1)
        for message in given:
            consumer.acknowledge(message, AcknowledgeType.REJECT if message.offset() == 1 else AcknowledgeType.ACCEPT)
        assert list(consumer.commit_sync(10.0).values()) == [None]
    eventually(lambda: is_done(own_broker))
    context = {
        "__dlq.errors.topic": TOPIC, "__dlq.errors.partition": "0", "__dlq.errors.offset": "1", "__dlq.errors.group": GROUP,
        "__dlq.errors.delivery.count": "1", "__dlq.errors.message": "A member of the group has rejected the record.",
    }  # fmt: skip
    assert letters(own_broker) == [Letter(b"k1", b"v1", {"trace": "1", **context})]


class Rejecting:
    """A member that rejects even values and accepts the others, through every crash of the broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.is_over = False
        self.seen = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            with (
                suppress(ApiError, ClientError), Cluster(self._broker.address) as cluster,
                OwnShareConsumer(cluster, GROUP, is_explicit=True, records_max=20) as consumer,
            ):  # fmt: skip
                consumer.subscribe([TOPIC])
                while not self.is_over:
                    for one in consumer.poll(0.2):
                        self.seen += 1
                        consumer.acknowledge(one, ACCEPT if int((one.record.value or b"")[1:]) % 2 else REJECT)
            time.sleep(0.1)


def test_no_dead_letter_is_lost_when_the_broker_is_killed(own_broker: BrokerProcess) -> None:
    """kill -9 between the stored decision, the copy and the end of it: each rejected record is copied at least once, no other one is."""
    prepare(own_broker, RECORDS, **{"share.delivery.count.limit": "25"})
    member = Rejecting(own_broker)
    try:
        for number in range(CRASHES):
            goal = RECORDS * (number + 1) // (CRASHES + 2)
            eventually(lambda: member.seen > goal, seconds=120, pause=0.001)  # noqa: B023 - called before the next round
            time.sleep(random.Random(number).random() * 0.02)
            own_broker.crash()
        eventually(lambda: is_done(own_broker), seconds=180)
    finally:
        member.is_over = True
        member.thread.join()
    found = letters(own_broker)
    copies = Counter(int(letter.headers["__dlq.errors.offset"]) for letter in found)
    assert set(copies) == set(range(0, RECORDS, 2))
    assert all(letter.value == b"v" + letter.headers["__dlq.errors.offset"].encode() for letter in found)
    assert len(found) <= len(copies) + 100 * CRASHES, "copied again only after a crash"


def test_a_topic_without_permission_gets_nothing_and_stops_no_member(own_broker: BrokerProcess) -> None:
    prepare(own_broker, 2)
    with Cluster(own_broker.address) as cluster:
        create_topic(cluster, DLQ, partitions=1)
        with OwnShareConsumer(cluster, GROUP, is_explicit=True) as consumer:
            consumer.subscribe([TOPIC])
            given = []
            while len(given) < 2:
                given += consumer.poll(1)
            for one in given:
                consumer.acknowledge(one, REJECT)
            consumer.commit()
            eventually(lambda: is_done(own_broker))
    assert letters(own_broker) == []
    assert "the topic 'dlq.t' does not permit it; set its errors.deadletterqueue.group.enable=true" in own_broker.log_text()
