"""MirrorRecords: which clients may send it, its limits, its answers, and the wait for the in-sync replicas."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.handlers.records import mirror_records
from ottla.security.acl import CLUSTER_NAME, AclOperation
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.mirror_records import MirrorPartition, MirrorPartitionResult, MirrorRecordsRequest, MirrorTopic
from ottla.wire.records import Record, encode_batch
from tests.fakes.answers import answer_of
from tests.fakes.log_settings import log_settings
from tests.handlers.admin_world import DenyAll
from tests.handlers.records_world import NOW_MS, RecordsWorld, request

SOURCE = "cluster:topic"
MIRRORED = log_settings(mirror_source=SOURCE)


def world_of_mirrors(**options: Any) -> RecordsWorld:
    """Leaders of the topic `t` in leader epoch 5."""
    world = RecordsWorld(config=MIRRORED, **options)
    for partition in world.partitions:
        partition.become_leader(leader_epoch=5, partition_epoch=1, replicas=(0,), isr=(0,), now_ms=0)
    return world


def sent(offset: int, *values: bytes, size: int = 0) -> bytes:
    padding = bytes(size)
    return bytes(encode_batch([Record(0, NOW_MS, None, value + padding) for value in values], base_offset=offset, leader_epoch=2))


def ask(world: RecordsWorld, *parts: tuple[int, int, bytes], topic: str = "t", source: str = SOURCE) -> Any:
    """Sends parts: each is a partition, the expected log end offset, and batches. Returns the results, or the `Pending` answer."""
    partitions = [MirrorPartition(index=index, expected_end=end, records=records) for index, end, records in parts]
    body = MirrorRecordsRequest(timeout_ms=1_000, topics=[MirrorTopic(name=topic, source=source, partitions=partitions)])
    decoded = decoder(MirrorRecordsRequest, 0)(memoryview(bytes(encoder(MirrorRecordsRequest, 0)(body))), 0)[0]
    answer = answer_of(mirror_records.handle(world.broker, request(0), decoded))
    return answer if isinstance(answer, Pending) else answer.topics[0].partitions


def facts(result: MirrorPartitionResult) -> tuple[str, int, int]:
    return ErrorCode(result.error_code).name, result.log_end_offset, result.committed_end


def test_batches_of_several_partitions_are_appended() -> None:
    world = world_of_mirrors()
    found = ask(world, (0, 0, sent(0, b"a", b"b") + sent(5, b"c")), (1, 0, sent(3, b"d")))
    assert [facts(one) for one in found] == [("NONE", 6, 6), ("NONE", 4, 4)]
    assert [one.leader_epoch for one in found] == [5, 5]


def test_a_refusal_has_the_bounds() -> None:
    """A refusal names the first and the end offset of the log, so that a mirror learns where to continue."""
    world = world_of_mirrors()
    ask(world, (0, 0, sent(0, b"a", b"b")))
    found = ask(world, (0, 0, sent(0, b"a", b"b")), (0, -1, b""), (7, 0, b""))
    assert [facts(one) for one in found] == [
        ("OFFSET_OUT_OF_RANGE", 2, 2), ("OFFSET_OUT_OF_RANGE", 2, 2), ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1),
    ]  # fmt: skip


def test_the_sender_needs_cluster_action() -> None:
    world = world_of_mirrors()
    world.broker.authorizer = DenyAll()
    assert [facts(one)[0] for one in ask(world, (0, 0, sent(0, b"a")))] == ["CLUSTER_AUTHORIZATION_FAILED"]
    assert world.partitions[0].log.log_end_offset == 0
    world.broker.authorizer = DenyAll((AclOperation.CLUSTER_ACTION, CLUSTER_NAME))
    assert [facts(one)[0] for one in ask(world, (0, 0, sent(0, b"a")))] == ["NONE"]


def test_only_the_leader_appends() -> None:
    world = world_of_mirrors()
    world.partitions[0].become_follower(leader_id=2, leader_epoch=6, partition_epoch=2, replicas=[0, 2], isr=[2])
    assert [facts(one) for one in ask(world, (0, 0, sent(0, b"a")))] == [("NOT_LEADER_OR_FOLLOWER", -1, -1)]


def test_a_request_has_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_records, "REQUEST_BYTES_MAX", 1_000)
    world = world_of_mirrors()
    found = ask(world, (0, 0, sent(0, b"a", size=2_000)), (1, 0, sent(0, b"b")))
    assert [facts(one)[:2] for one in found] == [("NONE", 1), ("RECORD_LIST_TOO_LARGE", 0)]


def test_a_request_has_a_bounded_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_records, "REQUEST_BATCHES_MAX", 3)
    world = world_of_mirrors()
    batches = b"".join(sent(number, b"a") for number in range(4))
    assert [facts(one)[:2] for one in ask(world, (0, 0, batches))] == [("RECORD_LIST_TOO_LARGE", 0)]


@pytest.mark.parametrize("junk", [b"\0" * 70, b"\xff" * 70])
def test_bytes_that_are_no_batches(junk: bytes) -> None:
    assert [facts(one)[:2] for one in ask(world_of_mirrors(), (0, 0, junk))] == [("CORRUPT_MESSAGE", 0)]


def test_the_answer_waits_until_the_batches_are_committed() -> None:
    world = world_of_mirrors(is_flush_on_ack=True)
    pending = ask(world, (0, 0, sent(0, b"a")))
    assert isinstance(pending, Pending) and not pending.is_done
    world.flush()
    assert pending.is_done and [facts(one) for one in pending.response.topics[0].partitions] == [("NONE", 1, 1)]


def test_batches_that_are_not_committed_in_time_stay() -> None:
    world = world_of_mirrors(is_flush_on_ack=True)
    pending = ask(world, (0, 0, sent(0, b"a")))
    world.timers.advance(1_000)
    assert [facts(one) for one in pending.response.topics[0].partitions] == [("REQUEST_TIMED_OUT", 1, 0)]
