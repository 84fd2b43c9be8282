"""Bugs of other brokers, tested with a whole broker. The name of each test has the id of the bug.

Bugs in a single coordinator, marker or partition are tested in the files of these parts (KAFKA-9144, 17754, 19999, 20357, Redpanda #31483,
ydb #51053 and #52731: search for the id).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.blocking.cluster import GROUP, Cluster
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, list_offsets
from ottla.client.core.producer_identity import ProducerIdentity
from ottla.testing import Broker
from ottla.wire.batch_header import iter_batches
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import CONTROL_ABORT, Record, encode_batch, read_control_record, read_records

numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.get_bootstrap_server(), client_id="bugs") as cluster:
        yield cluster


@pytest.fixture
def place(broker: Broker) -> TopicPartition:
    return TopicPartition(broker.create_topic(f"t-{next(numbers)}"), 0)


class Writer:
    """A producer of transactions v1."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.identity = ProducerIdentity(cluster.core, transactional_id=f"bugs-{next(numbers)}")
        cluster.run(self.identity.initialize())

    def begin(self, place: TopicPartition) -> None:
        self.identity.begin()
        self.cluster.run(self.identity.add_partitions([place]))

    def write(self, place: TopicPartition, *values: bytes) -> tuple[int, int]:
        """Error code and base offset."""
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value) for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.identity.take_sequences(place, len(values)),
            is_transactional=True,
        )
        topic = TopicProduceData(name=place.topic, partition_data=[PartitionProduceData(index=place.partition, records=batch)])
        request = ProduceRequest(transactional_id=self.identity.transactional_id, acks=-1, timeout_ms=5_000, topic_data=[topic])
        (answer,) = self.cluster.ask_broker(self.cluster.leader(place), request).responses[0].partition_responses
        return answer.error_code, answer.base_offset

    def end(self, *, is_commit: bool) -> None:
        self.cluster.run(self.identity.end(is_commit=is_commit))


def end_of(cluster: Cluster, place: TopicPartition) -> int:
    found = list_offsets(cluster, {place: LATEST})[place]
    assert isinstance(found, OffsetAt)
    return found.offset


def read_committed(cluster: Cluster, place: TopicPartition, offset: int, bytes_max: int = 1 << 20) -> tuple[list[bytes], int]:
    """Sends one Fetch as a consumer does. Returns the values that are not aborted, and the next offset."""
    partition = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=bytes_max,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=place.topic, partitions=[partition])],
    )
    (found,) = cluster.ask_broker(cluster.leader(place), request).responses[0].partitions
    assert found.error_code == 0
    waiting = sorted((one.first_offset, one.producer_id) for one in found.aborted_transactions or [])
    hidden, values, data = set[int](), list[bytes](), memoryview(found.records or b"")
    for start, header in iter_batches(data):
        batch = data[start : start + header.size_bytes]
        while waiting and waiting[0][0] <= header.last_offset:
            hidden.add(waiting.pop(0)[1])
        control = read_control_record(batch) if header.is_control else None
        if control is not None and control.kind == CONTROL_ABORT:
            hidden.discard(header.producer_id)
        elif control is None and header.producer_id not in hidden:
            values += [bytes(record.value or b"") for record in read_records(batch) if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return values, offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_redpanda_13364_a_marker_takes_one_offset(cluster: Cluster, place: TopicPartition, is_commit: bool) -> None:
    """Also a bug of Bufstream: the offset in the answer to a transactional Produce is the real one, not 0."""
    writer = Writer(cluster)
    offsets = []
    for _ in range(3):
        writer.begin(place)
        offsets += [writer.write(place, b"1", b"2"), writer.write(place, b"3")]
        writer.end(is_commit=is_commit)
    assert offsets == [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8), (0, 10)]
    assert end_of(cluster, place) == 12


def test_i30_a_partition_that_the_coordinator_does_not_know_of_takes_nothing(cluster: Cluster, place: TopicPartition) -> None:
    writer = Writer(cluster)
    code, _ = writer.write(place, b"never added")
    assert code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
    assert end_of(cluster, place) == 0


def test_redpanda_7819_aborted_transactions_come_from_the_segments_that_are_read(broker: Broker, cluster: Cluster) -> None:
    """P6: this holds in any segment, for any size of a fetch, and for any start of the log."""
    topic = broker.create_topic(f"segments-{next(numbers)}", segment_bytes="1048576")
    place, expected = TopicPartition(topic, 0), list[tuple[int, bytes]]()
    long, short = Writer(cluster), Writer(cluster)
    long.begin(place)
    for number in range(40):
        long.write(place, b"aborted %d" % number * 4_000)
        short.begin(place)
        _, offset = short.write(place, b"%d" % number * 20_000)
        short.end(is_commit=number % 3 != 0)
        if number % 3:
            expected.append((offset, b"%d" % number * 20_000))
        if number % 10 == 9:
            long.end(is_commit=False)
            long.begin(place)
    long.end(is_commit=False)
    assert len(expected) == 26 and end_of(cluster, place) > 120
    for start in (0, 37, 80):
        partition = DeleteRecordsPartition(partition_index=0, offset=start)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5_000)
        assert cluster.ask_broker(cluster.leader(place), request).topics[0].partitions[0].error_code == 0
        first = list_offsets(cluster, {place: EARLIEST})[place]
        assert isinstance(first, OffsetAt) and first.offset == start
        for size in (1, 90_000, 1 << 22):
            seen, position = list[bytes](), start
            while position < end_of(cluster, place):
                values, position = read_committed(cluster, place, position, size)
                seen += values
            assert seen == [value for offset, value in expected if offset >= start]


@pytest.mark.parametrize("is_commit", [True, False])
def test_redpanda_10670_offsets_of_every_group_end_with_their_transaction(cluster: Cluster, place: TopicPartition, is_commit: bool) -> None:
    """The groups' coordinators are in other partitions than the transaction's coordinator."""
    writer, groups = Writer(cluster), [f"g-{next(numbers)}" for _ in range(8)]
    writer.begin(place)
    for group in groups:
        cluster.run(writer.identity.commit_offsets(group, {place: 5}))

    def committed(group: str) -> tuple[int, int]:
        topics = [OffsetFetchRequestTopics(name=place.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
        answer = cluster.ask_coordinator(GROUP, group, request)
        found = answer.groups[0].topics[0].partitions[0]
        return found.error_code, found.committed_offset

    assert {committed(group) for group in groups} == {(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)}
    writer.end(is_commit=is_commit)
    assert {committed(group) for group in groups} == {(0, 5 if is_commit else -1)}
