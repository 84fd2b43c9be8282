"""Producers that consume, transform and produce in transactions, as correct clients do: they retry after lost answers and stop when they
are fenced. A process is a generator that yields `Call`s; it gets the answer, or None after a timeout (`patience_ms`). A new process sends
InitProducerId and then reads the group's offsets, which show the outcome of an earlier transaction if it was unknown. Clients of
transactions v1 initialise before every transaction, because only that is safe for them (docs/transactions.md). Clients of v2 continue with
the epoch in the answer to EndTxn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.handlers.groups import offset_fetch
from ottla.handlers.records import produce
from ottla.handlers.transactions import add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id, txn_offset_commit
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.records import Record, encode_batch
from tests.sim.history import Transaction
from tests.sim.network import Call
from tests.sim.process import Steps

if TYPE_CHECKING:
    from tests.sim.base_world import ProducerWorld

Batch = tuple[Any, int, Callable[[], Any], Callable[[Any], int], TopicPartition]
"""The arguments of a Produce, as `_must` takes them."""

TIMEOUT_MS = 3_000
IMPATIENT = 0.3
"""How many transactions are aborted with a Produce on its way."""
INPUT = TopicPartition("in", 0)
TRANSACTIONS = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
PLACES = {offset_fetch: OFFSETS, txn_offset_commit: OFFSETS}
"""The broker that is asked: the group coordinator, or else the coordinator of transactions; a Produce names its partition."""
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


class GiveUp(Exception):
    """This transaction cannot continue; a new InitProducerId and the group's offsets show its outcome."""


class Fenced(Exception):
    """Another producer has taken over the transactional id; the process ends."""


class Producer:
    """A process with a transactional id; several processes may have the same id. Its group is `group_id`."""

    again: Collection[int] = AGAIN
    """Errors after which a request is repeated."""
    acks = -1
    produce_timeout_ms = 1_000

    def __init__(self, world: ProducerWorld, transactional_id: str, group_id: str, is_v2: bool) -> None:
        self.world = world
        self.chance = world.chance
        self.transactional_id = transactional_id
        self.group_id = group_id
        self.is_v2 = is_v2
        self.identity = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.position = 0
        self.unknown: Transaction | None = None

    def run(self) -> Steps:
        try:
            while not self.world.is_ending:
                yield from self._begin()
                for _ in range(self.chance.randint(1, 5) if self.is_v2 else 1):
                    if self.world.is_ending:
                        return
                    try:
                        yield from self._transaction()
                    except GiveUp:
                        break
                    yield self.chance.randint(0, 40)
        except Fenced:
            return

    # Steps

    def _begin(self) -> Steps:
        """Takes over the transactional id, and reads the group's offsets."""
        named = self.identity if self.identity[0] >= 0 and self.chance.random() < 0.5 else (-1, -1)
        answer = yield from self._ask(
            init_producer_id,
            4,
            lambda: InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=named[0],
                producer_epoch=named[1],
            ),
            lambda answer: answer.error_code,
        )
        if answer.error_code:
            raise Fenced
        self._own(answer.producer_id, answer.producer_epoch)
        self.position = yield from committed_offset(self._ask, self.group_id)
        if self.unknown is not None:
            # InitProducerId has ended a transaction with an unknown outcome. The offsets show whether it was committed, because they are
            # part of the transaction. Offsets that have not moved prove that it failed. Offsets that have moved do not prove that it was
            # committed: a second process with the same id may have moved them equally far before they were read.
            self.unknown.outcome = "fail" if self.position < self.unknown.end else "info"
            self.unknown = None

    def _transaction(self) -> Steps:
        transaction = self.world.history.begin(self.group_id)
        transaction.start = self.position
        transaction.end = self.position + self.chance.randint(1, 3)
        chosen = self.chance.sample([TopicPartition("t", 0), TopicPartition("t", 1)], self.chance.randint(1, 2))
        if not self.is_v2:
            yield from self._add(chosen)
        for partition in chosen:
            for _ in range(self.chance.randint(1, 2)):
                values = [self.world.history.new_value(transaction, partition) for _ in range(self.chance.randint(1, 2))]
                sequence = self.sequences.get(partition, 0)
                self.sequences[partition] = sequence + len(values)
                yield from self._produce(partition, values, sequence)
            yield self.chance.choice([0, 0, 5, 50])
        yield from self._commit_offsets(transaction.end)
        if self.chance.random() < 0.05:
            yield TIMEOUT_MS + 1_000
        if self.chance.random() < IMPATIENT:
            self._produce_and_forget(transaction, chosen[0])
            yield from self._end(transaction, is_commit=False)
            return
        yield from self._end(transaction, is_commit=self.chance.random() < 0.75)

    def _add(self, partitions: list[TopicPartition]) -> Steps:
        producer_id, epoch = self.identity  # the current one: a late copy must not have a later one
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[partition.partition for partition in partitions])]
        yield from self._must(
            add_partitions_to_txn,
            3,
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        yield from self._must(
            add_offsets_to_txn,
            3,
            lambda: AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self.group_id,
            ),
            lambda answer: answer.error_code,
        )

    def _produce(self, partition: TopicPartition, values: list[str], sequence: int) -> Steps:
        answer = yield from self._must(*self._batch(partition, values, sequence))
        self.world.history.promise(values, answer.responses[0].partition_responses[0].base_offset)

    def _produce_and_forget(self, transaction: Transaction, partition: TopicPartition) -> None:
        """Produces without waiting for the answer, before an abort; the request may arrive at any later time."""
        value = self.world.history.new_value(transaction, partition)
        handler, version, body, _, place = self._batch(partition, [value], self.sequences.get(partition, 0))
        self.world.send(Call(handler, version, body, place), lambda _answer: None)

    def _batch(self, partition: TopicPartition, values: list[str], sequence: int) -> Batch:
        records = [Record(0, self.world.clock.wall_ms(), None, value.encode()) for value in values]
        batch = encode_batch(
            records,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=sequence,
            is_transactional=self.transactional_id != "",
        )
        return (
            produce,
            12 if self.is_v2 else 9,
            lambda: ProduceRequest(
                transactional_id=self.transactional_id or None,
                acks=self.acks,
                timeout_ms=self.produce_timeout_ms,
                topic_data=[
                    TopicProduceData(
                        name=partition.topic,
                        partition_data=[PartitionProduceData(index=partition.partition, records=memoryview(bytearray(batch)))],
                    )
                ],
            ),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
            partition,
        )

    def _commit_offsets(self, end: int) -> Steps:
        producer_id, epoch = self.identity  # the current one: a late copy must not have a later one
        yield from self._must(
            txn_offset_commit,
            5 if self.is_v2 else 3,
            lambda: TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=INPUT.topic, partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=end)]
                    )
                ],
            ),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    def _end(self, transaction: Transaction, *, is_commit: bool) -> Steps:
        producer_id, epoch = self.identity
        transaction.is_commit_called = is_commit
        if is_commit:
            transaction.outcome, self.unknown = "info", transaction
        answer = yield from self._ask(
            end_txn,
            5 if self.is_v2 else 3,
            lambda: EndTxnRequest(
                transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
            ),
            lambda answer: answer.error_code,
        )
        if answer.error_code in FENCED:
            raise Fenced
        if answer.error_code:
            raise GiveUp
        if is_commit:
            transaction.outcome, self.unknown, self.position = "ok", None, transaction.end
        if self.is_v2:
            self._own(answer.producer_id, answer.producer_epoch)

    def _own(self, producer_id: int, epoch: int) -> None:
        """Takes over a producer id and epoch. Sequence numbers restart at 0 with each new identity, and only then."""
        if (producer_id, epoch) != self.identity:
            self.identity = (producer_id, epoch)
            self.sequences.clear()

    # Asking

    def _must(
        self, handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int], place: TopicPartition | None = None
    ) -> Steps:
        answer = yield from self._ask(handler, version, body, code_of, place)
        code = code_of(answer)
        if code in FENCED:
            raise Fenced
        if code:
            raise GiveUp
        return answer

    def _ask(
        self, handler: Any, version: int, body: Callable[[], Any], code_of: Callable[[Any], int], place: TopicPartition | None = None
    ) -> Steps:
        """Repeats the request until its answer is final."""
        while True:
            answer = yield Call(handler, version, body, place or PLACES.get(handler, TRANSACTIONS))
            if answer is not None and code_of(answer) not in self.again:
                return answer
            yield self.chance.randint(1, 60)


class PlainProducer(Producer):
    """An idempotent producer without transactions. Its records are between the records of the other producers, and are visible immediately.
    """

    outputs: Sequence[TopicPartition] = (TopicPartition("t", 0), TopicPartition("t", 1))

    def __init__(self, world: ProducerWorld) -> None:
        super().__init__(world, "", "plain", is_v2=False)

    def run(self) -> Steps:
        while not self.world.is_ending:
            answer = yield from self._ask(
                init_producer_id,
                4,
                lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS),
                lambda answer: answer.error_code,
            )
            self._own(answer.producer_id, answer.producer_epoch)
            try:
                while not self.world.is_ending:
                    yield from self._write()
                    yield self.chance.randint(0, 200)
            except GiveUp:
                continue

    def _write(self) -> Steps:
        transaction = self.world.history.begin(self.group_id)
        transaction.is_commit_called, transaction.outcome = True, "info"
        partition = self.chance.choice(self.outputs)
        values = [self.world.history.new_value(transaction, partition) for _ in range(self.chance.randint(1, 3))]
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        yield from self._produce(partition, values, sequence)
        transaction.outcome = "ok"


def committed_offset(ask: Callable[..., Steps], group_id: str) -> Steps:
    """Reads the group's committed offset of the input; 0 if there is none."""

    def body() -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopic(name=INPUT.topic, partition_indexes=[0])]
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)

    answer = yield from ask(offset_fetch, 7, body, lambda answer: answer.error_code or answer.topics[0].partitions[0].error_code)
    return max(answer.topics[0].partitions[0].committed_offset, 0)
