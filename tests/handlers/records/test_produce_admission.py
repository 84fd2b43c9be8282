"""Produce while the broker asks the transaction coordinator: markers that come before the coordinator's answer, and batches that could
overtake each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.context import Pending
from ottla.handlers.records.produce import ASKS_MAX, handle
from ottla.security.principal import ANONYMOUS
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.handlers.records_world import NOW_MS, RecordsWorld, batch, request

PRODUCER_ID, VERSION = 5, 12


class Coordinator:
    """The transaction coordinator on another broker. It answers when the test says so, in the order of the questions."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[ErrorCode], None]] = []
        self.asked = 0

    def admit(self, _name: str, _id: int, _epoch: int, partitions: list[TopicPartition], _is_v2: bool, done: Any) -> None:
        self.asked += 1
        self.waiting.append(lambda code: done(dict.fromkeys(partitions, code)))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.waiting.pop(0)(code)


class Transactions:
    """One producer with transactions v2. Its first transaction (epoch 0) has ended for the client, but its marker is not written yet."""

    def __init__(self) -> None:
        self.world = RecordsWorld(partitions=1)
        self.coordinator = self.world.broker.transactions = Coordinator()
        before = self.produce(epoch=0, sequence=0)
        self.coordinator.answer()
        assert self.code_of(before) is ErrorCode.NONE

    def produce(self, epoch: int, sequence: int, principal: str = ANONYMOUS) -> Any:
        records = batch(b"a", b"b", producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
        body = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=9000, topic_data=[data])
        context = request(VERSION)
        context.connection.principal = principal
        return handle(self.world.broker, context, body)

    def mark(self, epoch: int) -> None:
        """Writes the marker of the previous transaction, which has the epoch of the next one."""
        leader = self.world.partitions[0].leader
        assert leader is not None
        leader.write_marker(PRODUCER_ID, epoch, 0, True, NOW_MS, 2)

    @staticmethod
    def code_of(answer: Any) -> ErrorCode:
        assert not isinstance(answer, Pending) or answer.is_done
        response = answer.response if isinstance(answer, Pending) else answer
        return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_the_marker_of_the_transaction_before_comes_while_the_coordinator_is_asked() -> None:
    """Found by franz-go on three brokers: EndTxn is answered before the markers are written, and the next transaction begins meanwhile."""
    world = Transactions()
    answer = world.produce(epoch=1, sequence=0)
    world.mark(epoch=1)
    world.coordinator.answer()
    assert (answer.is_done, world.coordinator.asked) == (False, 3), "the answer may be about the transaction before: it is asked again"
    world.coordinator.answer()
    assert world.code_of(answer) is ErrorCode.NONE


def test_batches_in_flight_over_the_marker_keep_their_order() -> None:
    world = Transactions()
    first = world.produce(epoch=1, sequence=0)
    world.mark(epoch=1)
    second = world.produce(epoch=1, sequence=2)
    while world.coordinator.waiting:
        world.coordinator.answer()
    offsets = [answer.response.responses[0].partition_responses[0].base_offset for answer in (first, second)]
    assert [world.code_of(answer) for answer in (first, second)] == [ErrorCode.NONE] * 2
    assert offsets == [3, 5], "behind two records and a marker"


def test_a_later_batch_does_not_overtake_one_that_the_coordinator_is_still_asked_about() -> None:
    """Found by Flink on three brokers: the first batch opened the transaction in the partition, so the third batch was appended without a
    question, before the second."""
    world = Transactions()
    world.mark(epoch=1)
    answers = [world.produce(epoch=1, sequence=0), world.produce(epoch=1, sequence=2)]
    world.coordinator.answer()
    answers.append(world.produce(epoch=1, sequence=4))
    while world.coordinator.waiting:
        world.coordinator.answer()
    assert [world.code_of(answer) for answer in answers] == [ErrorCode.NONE] * 3
    leader = world.world.partitions[0].leader
    assert leader is not None and not leader.verifications.is_waited_for(PRODUCER_ID, 1)
    world.produce(epoch=1, sequence=6)
    assert not world.coordinator.waiting, "nothing waits any more, so it need not ask"


def test_answers_out_of_order_do_not_disorder_the_batches() -> None:
    world = Transactions()
    world.mark(epoch=1)
    answers = [world.produce(epoch=1, sequence=sequence) for sequence in (0, 2, 4)]
    world.coordinator.waiting.reverse()
    while world.coordinator.waiting:
        world.coordinator.answer()
    assert [world.code_of(answer) for answer in answers] == [ErrorCode.NONE] * 3


def test_a_batch_behind_one_that_is_refused_is_refused() -> None:
    world = Transactions()
    first = world.produce(epoch=1, sequence=0)
    world.mark(epoch=1)
    second = world.produce(epoch=1, sequence=2)
    world.coordinator.answer()
    world.coordinator.answer()
    world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    while world.coordinator.waiting:
        world.coordinator.answer()
    assert world.code_of(first) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.code_of(second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.coordinator.asked <= 1 + 2 * ASKS_MAX


def test_an_answer_about_a_transaction_that_has_ended_lets_nothing_in() -> None:
    """Whichever markers come, a batch is admitted only by an answer about the transaction that is current at that moment (P5)."""
    world = Transactions()
    answer = world.produce(epoch=1, sequence=0)
    world.mark(epoch=2)
    world.coordinator.answer()
    world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.code_of(answer) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.world.partitions[0].log.log_end_offset == 3, "two records of the first transaction and the marker"


def test_another_principal_does_not_write_into_an_open_transaction_by_knowing_its_producer_id() -> None:
    """The other client has a transactional id too. Only the coordinator knows that the producer id belongs to another transactional id
    (R7)."""
    world = Transactions()
    mallory = world.produce(epoch=0, sequence=2, principal="User:mallory")
    assert isinstance(mallory, Pending), "the transaction is open here, and yet the coordinator is asked"
    world.coordinator.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert world.code_of(mallory) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.world.partitions[0].log.log_end_offset == 2
    own = world.produce(epoch=0, sequence=2)
    assert world.code_of(own) is ErrorCode.NONE and not world.coordinator.waiting, "its owner continues without a question"


def test_after_a_restart_the_first_batch_of_an_open_transaction_asks_again() -> None:
    world = Transactions()
    producers = world.world.partitions[0].log.producers
    producers.restore(producers.snapshot())
    mallory = world.produce(epoch=0, sequence=2, principal="User:mallory")
    world.coordinator.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert world.code_of(mallory) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    own = world.produce(epoch=0, sequence=2)
    world.coordinator.answer()
    assert world.code_of(own) is ErrorCode.NONE
    assert world.code_of(world.produce(epoch=0, sequence=4)) is ErrorCode.NONE and not world.coordinator.waiting


def test_a_transactional_id_that_two_principals_may_use_goes_over_from_one_to_the_other() -> None:
    world = Transactions()
    other = world.produce(epoch=0, sequence=2, principal="User:other")
    world.coordinator.answer()
    assert world.code_of(other) is ErrorCode.NONE
    assert world.code_of(world.produce(epoch=0, sequence=4, principal="User:other")) is ErrorCode.NONE
    assert not world.coordinator.waiting
