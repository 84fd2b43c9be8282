"""kafka-python against a broker process: produce, consume, groups under each assignor, seeks, commits, administration, transactions."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError, TopicAlreadyExistsError

from tests.clients.broker_process import BrokerProcess, eventually

Fresh = Callable[[str], str]
CODECS = [None] + [
    name for name, is_there in (("gzip", has_gzip), ("snappy", has_snappy), ("lz4", has_lz4), ("zstd", has_zstd)) if is_there()
]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


def send(broker: BrokerProcess, topic: str, values: list[bytes], **settings: Any) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.address, linger_ms=5, **settings)) as client:
        futures = [client.send(topic, value, partition=0) for value in values]
        assert [future.get(60).offset for future in futures] == list(range(len(values)))


def consumer(broker: BrokerProcess, *topics: str, group: str | None = None, **settings: Any) -> KafkaConsumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 50, **settings}
    return KafkaConsumer(*topics, bootstrap_servers=broker.address, group_id=group, **settings)


def read(client: KafkaConsumer, count: int, seconds: float = 60) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for records in client.poll(200, max_records=count - len(found)).values():
            found += records
    assert len(found) == count
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_comes_back_as_it_was(broker: BrokerProcess, fresh: Fresh, codec: str | None) -> None:
    topic, values = fresh("codec"), [b"%d" % number * 50 for number in range(200)]
    send(broker, topic, values, compression_type=codec)
    with closing(consumer(broker, topic)) as reader:
        assert [record.value for record in read(reader, 200)] == values


def test_keys_headers_timestamps_and_nulls(broker: BrokerProcess, fresh: Fresh) -> None:
    topic = fresh("records")
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as client:
        client.send(topic, b"v", b"k", headers=[("a", b"1"), ("a", b"")], timestamp_ms=1_600_000_000_123).get(60)
        client.send(topic, None, b"tombstone").get(60)
    with closing(consumer(broker, topic)) as reader:
        first, second = read(reader, 2)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 1_600_000_000_123)
    assert list(first.headers) == [("a", b"1"), ("a", b"")]
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)


def test_idempotent_produce_keeps_order(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, values = fresh("idempotent"), [b"%d" % number for number in range(1000)]
    send(broker, topic, values, enable_idempotence=True, acks="all", batch_size=500)
    with closing(consumer(broker, topic)) as reader:
        assert [record.value for record in read(reader, 1000)] == values


def test_large_records(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, value = fresh("large"), bytes(range(256)) * 20_000
    send(broker, topic, [value], max_request_size=9_000_000)
    with closing(consumer(broker, topic, max_partition_fetch_bytes=1_000_000)) as reader:
        assert [record.value for record in read(reader, 1)] == [value]


def test_seek_commit_and_resume(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, group = fresh("resume"), fresh("group")
    values = [b"%d" % number for number in range(20)]
    send(broker, topic, values)
    place = TopicPartition(topic, 0)
    with closing(consumer(broker, topic, group=group)) as reader:
        read(reader, 10)
        reader.seek(place, 3)
        assert [record.value for record in read(reader, 4)] == values[3:7]
        reader.commit({place: OffsetAndMetadata(7, "note", -1)})
        assert reader.committed(place, metadata=True)[:2] == (7, "note")
        assert (reader.beginning_offsets([place]), reader.end_offsets([place])) == ({place: 0}, {place: 20})
        assert reader.offsets_for_times({place: 0})[place].offset == 0
    with closing(consumer(broker, topic, group=group)) as reader:
        assert [record.value for record in read(reader, 13)] == values[7:]


def test_administration_of_topics(broker: BrokerProcess, fresh: Fresh, admin: KafkaAdminClient) -> None:
    topic = fresh("admin")
    admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2}})
    assert topic in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2
    admin.create_partitions({topic: 3})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.bytes": "77"})])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    assert "77" in str(described) and "1000" in str(described)
    send(broker, topic, [b"x"] * 5)
    admin.delete_records({TopicPartition(topic, 0): 2})
    with closing(consumer(broker)) as reader:
        assert reader.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 2}
    assert topic in str(admin.describe_log_dirs())
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())
    assert admin.describe_cluster()["cluster_id"]


def test_administration_of_groups(broker: BrokerProcess, fresh: Fresh, admin: KafkaAdminClient) -> None:
    topic, group = fresh("grouped"), fresh("group")
    send(broker, topic, [b"x"] * 5)
    place = TopicPartition(topic, 0)
    with closing(consumer(broker, topic, group=group)) as reader:
        read(reader, 5)
        reader.commit()
        assert "Stable" in str(admin.describe_groups([group]))
        assert group in str(admin.list_groups())
    assert admin.list_group_offsets(group)[group][place].offset == 5
    admin.alter_group_offsets(group, {place: OffsetAndMetadata(1, "", -1)})
    assert admin.list_group_offsets(group)[group][place].offset == 1
    admin.delete_group_offsets(group, [place])
    assert place not in admin.list_group_offsets(group)[group]
    admin.delete_groups([group])
    assert group not in str(admin.list_groups())


class Member(threading.Thread):
    """A member of a group in its own thread, because kafka-python joins only while it polls."""

    def __init__(self, broker: BrokerProcess, topic: str, group: str, assignor: type) -> None:
        super().__init__(daemon=True)
        self.make = lambda: consumer(
            broker, topic, group=group, partition_assignment_strategy=[assignor], heartbeat_interval_ms=200, session_timeout_ms=6000
        )
        self.is_leaving = threading.Event()
        self.owned: list[int] = []
        self.start()

    def run(self) -> None:
        with closing(self.make()) as client:
            while not self.is_leaving.is_set():
                client.poll(50)
                self.owned = sorted(place.partition for place in client.assignment())

    def leave(self) -> None:
        self.is_leaving.set()
        self.join(60)
        assert not self.is_alive()


@pytest.fixture
def joining(broker: BrokerProcess) -> Iterator[Callable[..., Member]]:
    """Makes members that leave at the end of the test, even if the test fails."""
    members: list[Member] = []

    def join(topic: str, group: str, assignor: type) -> Member:
        members.append(Member(broker, topic, group, assignor))
        return members[-1]

    yield join
    for member in members:
        member.is_leaving.set()
    for member in members:
        member.leave()


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor]
)
def test_members_share_the_partitions(
    joining: Callable[..., Member], fresh: Fresh, admin: KafkaAdminClient, assignor: type
) -> None:
    topic, group = fresh("shared"), fresh("group")
    admin.create_topics({topic: {"num_partitions": 4}})
    first = joining(topic, group, assignor)
    eventually(lambda: first.owned == [0, 1, 2, 3])
    second = joining(topic, group, assignor)
    eventually(lambda: len(first.owned) == 2 and sorted(first.owned + second.owned) == [0, 1, 2, 3])
    second.leave()
    eventually(lambda: first.owned == [0, 1, 2, 3])
    assert first.owned == [0, 1, 2, 3]


def test_new_groups_beside_a_busy_process_all_get_their_records(broker: BrokerProcess, fresh: Fresh) -> None:
    """New groups get their records even if the test process is busy. kafka-python must have the topic's metadata before it forms a group;
    otherwise it would join again, and might never finish that.
    """
    topic = fresh("busy")
    send(broker, topic, [b"v"])
    with subprocess.Popen([sys.executable, "-c", "while 1: pass"]) as busy:
        try:
            for number in range(20):
                with closing(consumer(broker, topic, group=fresh("busy"))) as client:
                    assert [record.value for record in read(client, 1, seconds=30)] == [b"v"], f"group {number}"
        finally:
            busy.kill()


def test_transactions_commit_and_abort(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, source, group = fresh("transactions"), fresh("source"), fresh("group")
    send(broker, source, [b"1", b"2"])
    place = TopicPartition(source, 0)
    with (
        closing(KafkaProducer(bootstrap_servers=broker.address, transactional_id=fresh("transactional"))) as client,
        closing(consumer(broker, source, group=group)) as worker,
    ):
        read(worker, 2)
        client.init_transactions()
        client.begin_transaction()
        client.send(topic, b"kept")
        client.send_offsets_to_transaction({place: OffsetAndMetadata(2, "", -1)}, worker.group_metadata())
        client.commit_transaction()
        client.begin_transaction()
        client.send(topic, b"dropped").get(60)
        client.abort_transaction()
        client.begin_transaction()
        client.send(topic, b"kept too")
        client.commit_transaction()
        assert worker.committed(place) == 2
    with closing(consumer(broker, topic, isolation_level="read_committed")) as reader:
        assert [record.value for record in read(reader, 2)] == [b"kept", b"kept too"]
    with closing(consumer(broker, topic)) as reader:
        assert [record.offset for record in read(reader, 3)] == [0, 2, 4]


def test_the_older_producer_of_a_transactional_id_is_fenced(broker: BrokerProcess, fresh: Fresh) -> None:
    topic, name = fresh("fenced"), fresh("transactional")
    settings = {"bootstrap_servers": broker.address, "transactional_id": name}
    with closing(KafkaProducer(**settings)) as old, closing(KafkaProducer(**settings)) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old").get(60)
        new.init_transactions()
        with pytest.raises(KafkaError):
            old.commit_transaction()
