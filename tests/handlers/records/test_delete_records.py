"""DeleteRecords waits for the replicas on live brokers."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.handlers.records.delete_records import NOTE_MS_MAX, handle
from ottla.replication.progress import FollowerFetch
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.handlers.records_world import NOW_MS, RecordsWorld, batch, request

TIMEOUT_MS = 3_000


@pytest.fixture
def world() -> RecordsWorld:
    """Partition 0, with three records, is on brokers 0, 1 and 2, of which 2 is not alive. Partition 1 is on broker 0 alone."""
    world = RecordsWorld()
    world.partitions[0].become_leader(leader_epoch=1, partition_epoch=1, replicas=(0, 1, 2), isr=(0, 1), now_ms=0)
    world.broker.metadata.brokers.update({number: BrokerMetadata(broker_id=number, endpoints={}) for number in (0, 1)})
    for partition in world.partitions:
        partition.require_leading().append(batch(b"a", b"b", b"c"), acks=1, now_ms=NOW_MS)
    fetch(world, 0)
    return world


def fetch(world: RecordsWorld, log_start_offset: int) -> None:
    world.partitions[0].note_follower(FollowerFetch(1, 1, 3, log_start_offset, 0))
    world.timers.run_due()


def delete(world: RecordsWorld, *indexes: int, offset: int = 2, timeout_ms: int = TIMEOUT_MS) -> DeleteRecordsResponse | Pending:
    asked = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in indexes]
    body = DeleteRecordsRequest(timeout_ms=timeout_ms, topics=[DeleteRecordsTopic(name="t", partitions=asked)])
    return handle(world.broker, request(2), body)


def results(answer: object) -> list[tuple[int, int]]:
    """Returns (low watermark, error) of each partition."""
    answer = answer.response if isinstance(answer, Pending) else answer
    assert isinstance(answer, DeleteRecordsResponse)
    found: list[DeleteRecordsPartitionResult] = [one for topic in answer.topics for one in topic.partitions]
    return [(one.low_watermark, one.error_code) for one in found]


def test_the_answer_comes_when_the_followers_have_deleted_too(world: RecordsWorld) -> None:
    pending = delete(world, 0, 1, 9)
    assert isinstance(pending, Pending)
    for start in (0, 1):
        fetch(world, start)
        assert not pending.is_done
    fetch(world, 2)
    assert results(pending) == [(2, 0), (2, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert not world.waiters.deadlines.waits()


def test_a_partition_without_followers_is_answered_at_once(world: RecordsWorld) -> None:
    assert results(delete(world, 1, offset=-1)) == [(3, 0)]


def test_a_follower_that_does_not_follow_in_time(world: RecordsWorld) -> None:
    pending = delete(world, 0, 1)
    world.timers.advance(TIMEOUT_MS)
    assert results(pending) == [(-1, ErrorCode.REQUEST_TIMED_OUT), (2, 0)]


def test_without_time_the_checkpoint_of_the_leader_is_awaited_and_no_follower(world: RecordsWorld) -> None:
    """In librdkafka's test 0081, an operation timeout of 0 must succeed where there are no followers. In a cluster the leader first writes
    the new start offset to its checkpoint."""
    for partition in world.partitions:
        partition.state.request_checkpoint = lambda: None
    pending = delete(world, 0, 1, timeout_ms=0)
    world.timers.advance(1)
    assert isinstance(pending, Pending) and not pending.is_done
    for partition in world.partitions:
        partition.state.note_log_start(2)
        partition.state.notify()
    world.timers.run_due()
    assert results(pending) == [(-1, ErrorCode.REQUEST_TIMED_OUT), (2, 0)]


def test_a_checkpoint_that_is_not_written(world: RecordsWorld) -> None:
    world.partitions[1].state.request_checkpoint = lambda: None
    pending = delete(world, 1, timeout_ms=0)
    world.timers.advance(NOTE_MS_MAX)
    assert results(pending) == [(-1, ErrorCode.REQUEST_TIMED_OUT)]
    assert not world.waiters.deadlines.waits()


def test_a_leadership_that_ends_meanwhile(world: RecordsWorld) -> None:
    pending = delete(world, 0)
    world.partitions[0].become_follower(leader_id=1, leader_epoch=2, partition_epoch=2, replicas=(0, 1, 2), isr=(0, 1))
    world.timers.run_due()
    assert results(pending) == [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
