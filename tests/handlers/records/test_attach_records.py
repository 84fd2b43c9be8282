"""AttachRecords: rights, the coordinator's verdict, the division into turns of the loop, and the time of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.handlers.context import Pending
from ottla.handlers.records import produce as produce_handler
from ottla.handlers.records.attach_records import PARTITIONS_MAX
from ottla.security.acl import AclOperation
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fakes.log_settings import log_settings
from tests.handlers.admin_world import DenyAll
from tests.handlers.records_world import batch, request
from tests.handlers.staged_world import PRODUCER, StagedWorld, codes, listed, results, staged_batch

A, B = staged_batch(b"a", b"b"), staged_batch(b"c")
CHUNKS = [listed(0, A, 2), listed(1, B, 1)]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def staged(**options: Any) -> StagedWorld:
    world = StagedWorld(**options)
    assert world.stage((0, 0, A), (0, 1, B), (1, 0, B)) == ["NONE"] * 3
    return world


def ends(world: StagedWorld) -> list[int]:
    return [partition.log.log_end_offset for partition in world.partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_the_coordinator_is_asked_once_for_all_partitions(version: int) -> None:
    """With version 1 the question also adds the partitions to the transaction (transactions v2)."""
    world = staged()
    pending = world.attach((0, 0, CHUNKS), (1, 0, [listed(0, B, 1)]), version=version)
    assert [(result.error_code, result.base_offset) for result in results(pending)] == [(0, 0), (0, 0)]
    assert world.coordinator.asked == [("tx", PRODUCER, 0, [T0, T1], bool(version))]
    assert ends(world) == [3, 1]


def test_an_open_transaction_needs_no_word_of_the_coordinator() -> None:
    world = staged()
    world.attach((0, 0, CHUNKS[:1]))
    assert codes(world.attach((0, 2, CHUNKS[1:]))) == ["NONE"]
    assert len(world.coordinator.asked) == 1 and ends(world) == [3, 0]


def test_nothing_is_appended_before_the_coordinator_has_answered() -> None:
    world = staged()
    world.coordinator.is_slow = True
    pending = world.attach((0, 0, CHUNKS))
    assert not pending.is_done and ends(world) == [0, 0]
    world.coordinator.answer()
    assert codes(pending) == ["NONE"] and ends(world) == [3, 0]


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CONCURRENT_TRANSACTIONS])
def test_the_coordinators_refusal_is_the_answer(code: ErrorCode) -> None:
    world = staged()
    world.coordinator.code = code
    assert codes(world.attach((0, 0, CHUNKS))) == [code.name] and ends(world) == [0, 0]


def test_each_partition_has_its_own_result() -> None:
    world = staged()
    pending = world.attach((0, 0, CHUNKS), (1, 0, [listed(3, B, 1)]), (7, 0, CHUNKS))
    assert codes(pending) == ["NONE", "UNKNOWN_STAGE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert [result.base_offset for result in results(pending)] == [0, -1, -1]
    assert "chunk 3 of attempt 1 for t-1 is not staged here" in (results(pending)[1].error_message or "")


def test_a_chunk_of_another_topic_or_partition_is_not_found() -> None:
    world = staged()
    assert codes(world.attach((1, 0, CHUNKS))) == ["UNKNOWN_STAGE"]
    assert codes(world.attach((0, 0, CHUNKS), topic="other")) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert ends(world) == [0, 0]


def test_another_principals_token_is_unknown() -> None:
    world = staged()
    assert codes(world.attach((0, 0, CHUNKS), principal="User:other")) == ["UNKNOWN_STAGE"]


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ((AclOperation.WRITE, "t"), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        ((AclOperation.WRITE, "tx"), "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_both_rights_are_needed(allowed: tuple[AclOperation, str], code: str) -> None:
    world = staged()
    world.broker.authorizer = DenyAll(allowed)
    assert codes(world.attach((0, 0, CHUNKS))) == [code]
    assert world.coordinator.asked == [] and ends(world) == [0, 0]


@pytest.mark.parametrize("acks", [0, 1, 2])
def test_only_all_replicas_acknowledge(acks: int) -> None:
    assert codes(staged().attach((0, 0, CHUNKS), acks=acks)) == ["INVALID_REQUIRED_ACKS"]


def test_topics_of_coordinators_take_nothing() -> None:
    assert codes(staged().attach((0, 0, CHUNKS), topic=TRANSACTION_STATE_TOPIC)) == ["INVALID_TOPIC_EXCEPTION"]


def test_the_number_of_partitions_is_bounded() -> None:
    pending = staged().attach(*[(0, 0, [])] * (PARTITIONS_MAX + 1))
    assert set(codes(pending)) == {"INVALID_REQUEST"}


# The work in turns


def in_turns(world: StagedWorld) -> None:
    """Makes every step of the work take a turn of the loop of its own."""
    world.broker.stages.turns.begin()
    world.broker.stages.turns.piece_ms = 0


def test_a_large_attach_leaves_the_loop_to_others_and_the_next_one_waits() -> None:
    world = staged()
    world.attach((0, 0, [listed(0, A, 2)]))
    in_turns(world)
    first = world.attach((0, 2, CHUNKS[1:]), (1, 0, [listed(0, B, 1)]))
    second = world.attach((0, 3, [listed(5, B, 1)]))
    seen: list[tuple[list[int], bool, bool]] = []

    def look() -> None:
        """Stands for other work of the loop."""
        seen.append((ends(world), first.is_done, second.is_done))
        if not second.is_done:
            world.timers.call_soon(look)

    look()
    while not second.is_done:
        world.timers.advance_to_next()
    assert [ended for ended, _, _ in seen if ended == [3, 0]], "nothing else ran between two batches"
    assert (False, True) not in [(is_first_done, is_second_done) for _, is_first_done, is_second_done in seen]
    assert codes(first) == ["NONE", "NONE"] and codes(second) == ["UNKNOWN_STAGE"]


def test_a_retry_that_comes_while_the_work_is_under_way_appends_nothing_twice() -> None:
    world = staged()
    in_turns(world)
    pending = [world.attach((0, 0, CHUNKS)) for _ in range(3)]
    while not all(answer.is_done for answer in pending):
        world.timers.advance_to_next()
    assert [codes(answer) for answer in pending] == [["NONE"]] * 3
    assert ends(world) == [3, 0]


def test_the_work_goes_on_when_the_client_waits_no_longer() -> None:
    world = staged()
    in_turns(world)
    world.coordinator.is_slow = True
    pending = world.attach((0, 0, CHUNKS), timeout_ms=100)
    world.timers.advance(100)
    assert codes(pending) == ["REQUEST_TIMED_OUT"] and ends(world) == [0, 0]
    world.coordinator.answer()
    while ends(world) != [3, 0]:
        world.timers.advance_to_next()
    assert codes(pending) == ["REQUEST_TIMED_OUT"]


def test_a_client_that_is_gone_harms_nothing() -> None:
    world = staged()
    in_turns(world)
    pending = world.attach((0, 0, CHUNKS))
    assert pending.abandon is not None
    pending.abandon()
    while ends(world) != [3, 0]:
        world.timers.advance_to_next()


# Acknowledgements


def test_i14_the_answer_waits_for_the_acknowledgement() -> None:
    world = staged(is_flush_on_ack=True)
    pending = world.attach((0, 0, CHUNKS))
    assert not pending.is_done and ends(world) == [3, 0]
    retry = world.attach((0, 0, CHUNKS))
    assert not retry.is_done, "a retry is as safe as the first attempt"
    world.flush()
    assert codes(pending) == codes(retry) == ["NONE"]
    assert [results(answer)[0].base_offset for answer in (pending, retry)] == [0, -1]


def test_i14_too_few_replicas_in_sync() -> None:
    world = staged(config=log_settings(min_insync_replicas=2))
    world.partitions[0].become_leader(leader_epoch=1, partition_epoch=1, replicas=[0, 1], isr=[0], now_ms=0)
    world.stage((0, 0, A), (0, 1, B))
    assert codes(world.attach((0, 0, CHUNKS))) == ["NOT_ENOUGH_REPLICAS"] and ends(world) == [0, 0]


def test_the_time_to_wait_is_bounded() -> None:
    world = staged(is_flush_on_ack=True)
    pending = world.attach((0, 0, CHUNKS), timeout_ms=500)
    world.timers.advance(500)
    assert codes(pending) == ["REQUEST_TIMED_OUT"]


def test_a_leader_that_is_replaced_while_the_answer_waits() -> None:
    world = staged(is_flush_on_ack=True)
    pending = world.attach((0, 0, CHUNKS))
    world.partitions[0].become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[0, 2], isr=[2])
    world.waiters.run()
    assert codes(pending) == ["NOT_LEADER_OR_FOLLOWER"]


# The order of a producer's appends


def produce(world: StagedWorld, *values: bytes, sequence: int, producer_id: int = PRODUCER) -> Pending:
    """Sends a batch of the same transaction by Produce, without staging."""
    records = batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    body = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=[data])
    answer = produce_handler.handle(world.broker, request(9), body)
    if isinstance(answer, Pending):
        return answer
    pending = Pending()
    pending.complete(answer)
    return pending


def produced(pending: Pending) -> tuple[str, int]:
    assert pending.is_done
    (result,) = pending.response.responses[0].partition_responses
    return ErrorCode(result.error_code).name, result.base_offset


def test_a_produce_that_follows_an_attach_waits_for_it() -> None:
    world = staged()
    in_turns(world)
    attached = world.attach((0, 0, CHUNKS))
    first, second = produce(world, b"d", sequence=3), produce(world, b"e", sequence=4)
    other = produce(world, b"x", sequence=0, producer_id=PRODUCER + 1)
    assert not first.is_done and other.is_done
    while not second.is_done:
        world.timers.advance_to_next()
    assert codes(attached) == ["NONE"]
    assert (produced(first), produced(second)) == (("NONE", 4), ("NONE", 5))


def test_a_produce_waits_while_the_coordinator_is_asked_about_the_attach() -> None:
    world = staged()
    world.coordinator.is_slow = True
    attached = world.attach((0, 0, CHUNKS))
    follows = produce(world, b"d", sequence=3)
    world.coordinator.answer()
    assert codes(attached) == ["NONE"] and produced(follows) == ("NONE", 3)


def test_a_produce_behind_a_refused_attach_is_out_of_order() -> None:
    world = staged()
    in_turns(world)
    attached = world.attach((0, 0, [CHUNKS[0], listed(9, B, 1)]))
    follows = produce(world, b"d", sequence=3)
    while not follows.is_done:
        world.timers.advance_to_next()
    assert codes(attached) == ["UNKNOWN_STAGE"] and produced(follows) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert ends(world) == [0, 0]


def test_without_an_attach_a_gap_is_refused_at_once() -> None:
    world = staged()
    world.attach((0, 0, CHUNKS))
    assert produced(produce(world, b"d", sequence=7)) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)


def test_a_step_that_fails_closes_the_connection_and_lets_the_producer_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly such a request had no answer until its time-out, and later requests of the producer never had one."""
    world, followed, failure = staged(), list[str](), KeyError("a mistake of ours")

    def fail(*_given: object) -> None:
        raise failure

    monkeypatch.setattr("ottla.replication.attaching.check_manifest", fail)
    pending = world.attach((0, 0, CHUNKS))
    world.timers.run_due()
    assert pending.is_done and pending.error is failure
    assert not world.broker.stages.call_when_attached(T0, PRODUCER, lambda: followed.append("late"))
    assert not world.waiters.deadlines.waits()
