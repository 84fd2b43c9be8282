"""A consumer against a broker process: positions, groups, commits, transactions."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import EARLIEST, LATEST, create_partitions
from ottla.testing.broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server) as cluster:
        yield cluster


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex[:12]}", 2)


def _fill(cluster: Cluster, topic: str, count: int, partition: int = 0) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)


def _values(consumer: Consumer, count: int, seconds: float = 15.0) -> list[bytes | None]:
    found: list[bytes | None] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for fetched in consumer.poll(0.2):
            found += [None if record.value is None else bytes(record.value) for record in fetched.records()]
    return found


class Member(threading.Thread):
    """A consumer in a thread of its own: joining waits for the other members."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.cluster = Cluster(broker.bootstrap_server)
        self.consumer = Consumer(self.cluster, group_id=group)
        self.consumer.subscribe([topic])
        self.stopping = threading.Event()

    def run(self) -> None:
        with self.cluster, self.consumer:
            while not self.stopping.is_set():
                self.consumer.poll(0.05)

    def stop(self) -> None:
        self.stopping.set()
        self.join(20)


def _until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_from_the_beginning_from_an_offset_and_from_the_end(cluster: Cluster, topic: str) -> None:
    _fill(cluster, topic, 5)
    partition = TopicPartition(topic, 0)
    with Consumer(cluster) as consumer:
        consumer.assign({partition: EARLIEST})
        assert _values(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
        consumer.seek(partition, 3)
        assert _values(consumer, 2) == [b"3", b"4"]
        assert consumer.positions == {partition: 5}
        consumer.assign({partition: LATEST})
        assert consumer.positions == {partition: 5}
        assert consumer.poll(0.05) == []


def test_the_first_fetch_reads_the_partitions_in_their_order(cluster: Cluster, broker: Broker, topic: str) -> None:
    """Also of a consumer that has to connect first."""
    for partition in (1, 0):
        _fill(cluster, topic, 1, partition)
    with Cluster(broker.bootstrap_server) as other, Consumer(other) as consumer:
        consumer.assign({TopicPartition(topic, 0): EARLIEST, TopicPartition(topic, 1): EARLIEST})
        read: list[int] = []
        while len(read) < 2:
            read += [fetched.partition.partition for fetched in consumer.poll(5)]
    assert read == [0, 1]


def test_an_offset_out_of_range_follows_the_policy(cluster: Cluster, topic: str) -> None:
    _fill(cluster, topic, 2)
    partition = TopicPartition(topic, 0)
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign({partition: 99})
        assert _values(consumer, 2) == [b"0", b"1"]
    consumer = Consumer(cluster, auto_offset_reset="none")
    consumer.assign({partition: 99})
    with pytest.raises(ApiError) as caught:
        _values(consumer, 1, 5)
    assert caught.value.code.name == "OFFSET_OUT_OF_RANGE"
    consumer.close()


def test_a_group_goes_on_where_it_has_committed(cluster: Cluster, topic: str) -> None:
    group = f"group-{topic}"
    _fill(cluster, topic, 3)
    with Consumer(cluster, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert _values(consumer, 3) == [b"0", b"1", b"2"]
        consumer.commit()
    _fill(cluster, topic, 1)
    with Consumer(cluster, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert _values(consumer, 1) == [b"0"]
        assert consumer.positions[TopicPartition(topic, 0)] == 4


def test_two_members_share_the_partitions_and_one_inherits_them(broker: Broker, topic: str) -> None:
    first, second = (Member(broker, f"group-{topic}", topic) for _ in range(2))
    first.start()
    second.start()
    try:
        assert _until(lambda: len(first.consumer.positions) == len(second.consumer.positions) == 1)
        assert set(first.consumer.positions) | set(second.consumer.positions) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        second.stop()
        assert _until(lambda: len(first.consumer.positions) == 2)
    finally:
        first.stop()
        second.stop()
    assert not first.is_alive()


def test_a_static_leader_that_returns_sees_partitions_that_are_added_later(cluster: Cluster, topic: str) -> None:
    """It gets its assignment back without a rebalance (KIP-814), and is still the one that looks for new partitions."""
    group = f"group-{topic}"
    with Consumer(cluster, group_id=group, instance_id="i", metadata_age_s=0.1) as consumer:
        consumer.subscribe([topic])
        assert _until(lambda: not consumer.poll(0.05) and len(consumer.positions) == 2)
    with Consumer(cluster, group_id=group, instance_id="i", metadata_age_s=0.1) as consumer:
        consumer.subscribe([topic])
        assert _until(lambda: not consumer.poll(0.05) and len(consumer.positions) == 2)
        create_partitions(cluster, topic, 3)
        assert _until(lambda: not consumer.poll(0.05) and len(consumer.positions) == 3)


def test_read_committed_skips_aborted_records(cluster: Cluster, topic: str) -> None:
    with Producer(cluster, transactional_id=f"id-{topic}") as producer:
        for value, is_kept in ((b"lost", False), (b"kept", True)):
            producer.begin()
            producer.produce(topic, value, partition=0)
            producer.flush()
            if is_kept:
                producer.commit()
            else:
                producer.abort()
    for isolation_level, expected in ((READ_COMMITTED, [b"kept"]), (0, [b"lost", b"kept"])):
        with Consumer(cluster, isolation_level=isolation_level) as consumer:
            consumer.assign({TopicPartition(topic, 0): EARLIEST})
            assert _values(consumer, len(expected)) == expected
