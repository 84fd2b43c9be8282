"""The steps of a transaction as requests, in both protocols, and ends whose answers are lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.conversation import Ask
from ottla.client.core.group_admin import Committed
from ottla.client.core.staging import StagedChunk
from ottla.client.core.transaction import TransactionCore
from ottla.client.errors import ConnectError, FencedError, KafkaError, OutcomeUnknownError
from ottla.wire.batch_header import check_crc, read_batch_header
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.wire.messages.attach_records import AttachPartitionResult, AttachRecordsResponse, AttachTopicResult
from ottla.wire.messages.end_txn import EndTxnResponse
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.records import Record, encode_batch
from tests.client.core.drive import ByHand

PRODUCE, FIND, INIT, ADD, ADD_OFFSETS, END, COMMIT, ATTACH = 0, 10, 22, 24, 25, 26, 28, 20001
A = TopicPartition("t", 0)


class Coordinating:
    """A broker that grants everything; `instead` holds answers to be given before that, by key."""

    def __init__(self) -> None:
        self.epoch = 4
        self.instead: dict[int, list[Callable[[], Any]]] = {}

    def __call__(self, ask: Ask) -> Any:
        key = ask.body.API_KEY
        if self.instead.get(key):
            return self.instead[key].pop(0)()
        body: Any = ask.body
        if key == FIND:
            found = [Coordinator(key=name, node_id=1, host="b1", port=9092) for name in body.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        if key == PRODUCE:
            parts = [PartitionProduceResponse(index=one.index) for topic in body.topic_data for one in topic.partition_data]
            return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])
        if key == ATTACH:
            results = [AttachPartitionResult(index=one.index, base_offset=20) for topic in body.topics for one in topic.partitions]
            return AttachRecordsResponse(topics=[AttachTopicResult(name="t", partitions=results)])
        if key == COMMIT:
            committed = TxnOffsetCommitResponseTopic(name="s", partitions=[TxnOffsetCommitResponsePartition(partition_index=0)])
            return TxnOffsetCommitResponse(topics=[committed])
        if key == END and ask.version == 5:
            return EndTxnResponse(producer_id=9, producer_epoch=body.producer_epoch + 1)
        return {
            INIT: InitProducerIdResponse(producer_id=9, producer_epoch=self.epoch),
            ADD: AddPartitionsToTxnResponse(),
            ADD_OFFSETS: AddOffsetsToTxnResponse(),
            END: EndTxnResponse(),
        }[key]


def _world(transaction_version: int, **options: Any) -> tuple[ByHand, Coordinating, TransactionCore]:
    broker = Coordinating()
    world = ByHand(broker, leaders={"t": [1]}, timeout_s=5)
    world.transaction_version = transaction_version
    return world, broker, TransactionCore(world.core, "eos/g", **options)


def _keys(world: ByHand) -> list[tuple[int, int | None]]:
    return [(ask.body.API_KEY, ask.version) for ask in world.asked if ask.body.API_KEY != FIND]


def _batch() -> bytearray:
    return encode_batch([Record(0, 0, None, b"v", ()), Record(0, 0, None, b"w", ())])


@pytest.mark.parametrize(
    ("transaction_version", "wanted"),
    [
        (1, [(INIT, None), (ADD, None), (PRODUCE, None), (ADD_OFFSETS, None), (COMMIT, None), (END, None)]),
        (2, [(INIT, None), (PRODUCE, 12), (COMMIT, 5), (END, 5)]),
    ],
)
def test_the_requests_of_a_transaction(transaction_version: int, wanted: list[tuple[int, int | None]]) -> None:
    world, _, transaction = _world(transaction_version)
    world.run(transaction.initialize())
    transaction.begin()
    batches = [_batch(), _batch()]
    world.run(transaction.produce({A: batches}))
    world.run(transaction.commit_offsets("g", {TopicPartition("s", 0): Committed(5, 2, '{"q":1}')}))
    world.run(transaction.commit())
    assert [step for step in _keys(world) if step[0] != PRODUCE] == [step for step in wanted if step[0] != PRODUCE]
    assert {step for step in _keys(world) if step[0] == PRODUCE} == {step for step in wanted if step[0] == PRODUCE}
    headers = [read_batch_header(batch) for batch in batches]
    assert [(one.producer_id, one.producer_epoch, one.base_sequence, one.is_transactional) for one in headers] == [
        (9, 4, 0, True),
        (9, 4, 2, True),
    ]
    assert all(check_crc(batch, 0, len(batch)) for batch in batches)
    (commit,) = [ask.body for ask in world.asked if ask.body.API_KEY == COMMIT]
    sent: Any = commit
    (offset,) = sent.topics[0].partitions
    assert (offset.committed_offset, offset.committed_leader_epoch, offset.committed_metadata) == (5, 2, '{"q":1}')


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_sequence_numbers_go_on_from_produced_batches_to_attached_chunks(transaction_version: int) -> None:
    world, _, transaction = _world(transaction_version)
    world.run(transaction.initialize())
    transaction.begin()
    chunk = StagedChunk(attempt_id=7, chunk=3, records=5, length=100, crc=1)
    world.run(transaction.produce({A: [_batch()]}))
    assert world.run(transaction.attach(bytes(16), {A: [chunk, chunk]})) == {A: 20}
    after = _batch()
    world.run(transaction.produce({A: [after]}))
    assert read_batch_header(after).base_sequence == 12
    (asked,) = [ask.body for ask in world.asked if ask.body.API_KEY == ATTACH]
    sent: Any = asked
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch, sent.batch_token) == ("eos/g", 9, 4, bytes(16))
    assert [(one.index, one.base_sequence, len(one.chunks)) for one in sent.topics[0].partitions] == [(0, 2, 2)]


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_partition_that_only_staged_chunks_go_to_is_added_and_the_transaction_ended(transaction_version: int) -> None:
    world, _, transaction = _world(transaction_version)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.attach(bytes(16), {A: [StagedChunk(7, 0, 5, 100, 1)]}))
    world.run(transaction.commit())
    assert [key for key, _ in _keys(world)] == [INIT, *([ADD] if transaction_version == 1 else []), ATTACH, END]
    assert (ATTACH, transaction_version - 1) in _keys(world)


def test_the_second_protocol_begins_each_transaction_with_a_new_epoch_and_sequence_0() -> None:
    world, _, transaction = _world(2)
    world.run(transaction.initialize())
    for epoch in (4, 5):
        transaction.begin()
        batch = _batch()
        world.run(transaction.produce({A: [batch]}))
        assert (read_batch_header(batch).producer_epoch, read_batch_header(batch).base_sequence) == (epoch, 0)
        world.run(transaction.commit())


def test_a_caller_may_keep_to_the_first_protocol() -> None:
    world, _, transaction = _world(2, may_use_v2=False)
    world.run(transaction.initialize())
    assert not transaction.uses_v2


def test_initialize_names_the_identity_that_is_still_held_and_waits_for_the_transaction_before() -> None:
    world, broker, transaction = _world(1)
    broker.instead[INIT] = [lambda: InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)] * 2
    world.run(transaction.initialize(9, 3))
    asked: list[Any] = [ask.body for ask in world.asked if ask.body.API_KEY == INIT]
    assert [(one.producer_id, one.producer_epoch) for one in asked] == [(9, 3)] * 3
    assert len(world.pauses) == 2


def test_a_fenced_producer_is_refused_for_good() -> None:
    world, broker, transaction = _world(1)
    broker.instead[INIT] = [lambda: InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)]
    with pytest.raises(FencedError, match="eos/g"):
        world.run(transaction.initialize(9, 3))
    assert world.pauses == []


def _lose() -> Any:
    raise ConnectError("lost b1:9092")


def test_an_end_whose_answer_is_lost_is_repeated_as_it_was() -> None:
    world, broker, transaction = _world(2)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.produce({A: [_batch()]}))
    broker.instead[END] = [_lose] * 5
    world.run(transaction.commit())
    ends: list[Any] = [ask.body for ask in world.asked if ask.body.API_KEY == END]
    assert len(ends) == 6
    assert {(one.producer_epoch, one.committed) for one in ends} == {(4, True)}
    assert not transaction.is_open


def test_an_end_that_is_never_answered_has_an_unknown_outcome() -> None:
    world, broker, transaction = _world(1)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.produce({A: [_batch()]}))
    broker.instead[END] = [_lose] * 1000
    with pytest.raises(OutcomeUnknownError, match=r"no answer to the commit of 'eos/g': lost b1:9092"):
        world.run(transaction.commit())
    assert transaction.is_lost and not transaction.is_open
    del broker.instead[END]
    world.run(transaction.initialize())
    assert not transaction.is_open


def _refuse(code: ErrorCode) -> Callable[[], Any]:
    return lambda: EndTxnResponse(error_code=code)


def _find_nothing() -> Any:
    return FindCoordinatorResponse(coordinators=[Coordinator(key="eos/g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)])


@pytest.mark.parametrize(
    ("ends", "finds"),
    [
        ([_lose, *[_refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * 1000], []),
        ([_lose], [_find_nothing] * 1000),
        ([_lose, _refuse(ErrorCode.PRODUCER_FENCED)], []),
        ([_refuse(ErrorCode.NOT_COORDINATOR)] * 1000, []),
    ],
    ids=["coordinator without its log", "no coordinator", "fenced", "never the coordinator"],
)
def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(ends: list[Any], finds: list[Any]) -> None:
    """The coordinator may have executed an earlier attempt. The caller got the refusal, as if the transaction were still open."""
    world, broker, transaction = _world(1)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.produce({A: [_batch()]}))
    broker.instead = {END: ends, FIND: finds}
    with pytest.raises(OutcomeUnknownError, match="no answer to the commit of 'eos/g'"):
        world.run(transaction.commit())
    assert transaction.is_lost and not transaction.is_open
    broker.instead = {END: [_refuse(ErrorCode.PRODUCER_FENCED)]}
    with pytest.raises(OutcomeUnknownError, match="PRODUCER_FENCED"):
        world.run(transaction.commit())
    broker.instead = {}
    world.run(transaction.commit())
    assert not transaction.is_lost
    transaction.begin()


def test_a_lost_abort_is_not_repeated_as_a_commit() -> None:
    world, broker, transaction = _world(1)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.produce({A: [_batch()]}))
    broker.instead[END] = [_lose] * 1000
    with pytest.raises(OutcomeUnknownError, match="abort"):
        world.run(transaction.abort())
    with pytest.raises(KafkaError, match="no transaction is open"):
        world.run(transaction.commit())


def test_an_answer_that_decides_is_raised_after_a_lost_one() -> None:
    world, broker, transaction = _world(1)
    world.run(transaction.initialize())
    transaction.begin()
    world.run(transaction.produce({A: [_batch()]}))
    broker.instead[END] = [_lose, _refuse(ErrorCode.INVALID_TXN_STATE)]
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        world.run(transaction.commit())


def test_an_empty_transaction_sends_nothing_and_two_cannot_be_open() -> None:
    world, _, transaction = _world(1)
    world.run(transaction.initialize())
    transaction.begin()
    with pytest.raises(KafkaError, match="open already"):
        transaction.begin()
    world.run(transaction.abort())
    assert _keys(world) == [(INIT, None)]
    with pytest.raises(KafkaError, match="no transaction is open"):
        world.run(transaction.commit())
