"""The batches of a producer between sealing and acknowledgement: what to send next, and what an answer or a lost connection means.

Order after a failure: nothing new is sent until every request under way has been answered or lost (`may_send`); then the failed batches are
sent again in the order in which they were sealed, with the same sequence numbers, so that the broker drops what it had already appended.
Brokers know only the last five batches of a producer, so nothing new follows until those that were sent again have been answered.
A batch fails for good at its deadline, upon a refusal that will not pass, and, without sequence numbers, with its connection.

A batch that ends unappended leaves a gap in the sequence numbers of its partition, and brokers refuse all behind a gap. So these batches
get new numbers, of another epoch of the producer (`to_renumber`). Only those that cannot have been appended do: what a lost connection left
open is sent as it was until a broker has answered it. In a transaction there is nothing to renumber, it has to be aborted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.metadata import ClientMetadata
from ottla.client.errors import RETRIABLE, ConnectError, KafkaError, TransportError, refused
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record

REQUEST_BYTES_MAX = 1024 * 1024 - 1024
PRODUCE_TIMEOUT_MS = 30_000


class Batch:
    """Records of one partition on their way; sealed once it has its bytes, its number and a deadline in seconds."""

    __slots__ = ("count", "data", "deadline", "is_open", "number", "opened", "partition", "records", "size")

    def __init__(self, partition: TopicPartition, opened: float) -> None:
        self.partition = partition
        self.opened = opened
        self.deadline = 0.0
        self.records: list[Record] = []
        self.size = 0
        self.count = 0
        self.number = 0
        self.is_open = False  # it may have been appended: sent, and not refused since for a gap before it
        self.data: bytearray = bytearray()


class Outcome(NamedTuple):
    """The end of a batch: the offset of its first record, or why it was not appended."""

    batch: Batch
    base_offset: int
    error: KafkaError | TransportError | None


class SendQueue:
    """See the module."""

    def __init__(self, metadata: ClientMetadata, *, acks: int, is_idempotent: bool, may_renumber: bool = False) -> None:
        self.metadata = metadata
        self.acks = acks
        self.is_idempotent = is_idempotent
        self.may_renumber = may_renumber
        self.gaps: dict[TopicPartition, KafkaError | TransportError] = {}
        """Partitions with a gap in their sequence numbers, and why."""
        self.in_flight: dict[int, deque[list[Batch]]] = {}
        """The requests under way to each broker, oldest first."""
        self._ready: deque[Batch] = deque()
        self._failed: list[Batch] = []
        self._sealed = 0
        self._retried = 0  # the number of the newest batch that was sent again

    def add(self, batch: Batch) -> None:
        """Takes a batch that has just been sealed."""
        self._sealed += 1
        batch.number = self._sealed
        self._ready.append(batch)

    def clear(self) -> None:
        """Drops everything, what is under way too."""
        self._ready.clear()
        self._failed.clear()
        self.in_flight.clear()
        self.gaps.clear()

    def drop_unsent(self) -> None:
        for batch in self._ready:
            self.gaps.setdefault(batch.partition, refused(ErrorCode.TRANSACTION_ABORTABLE, f"a batch for {batch.partition} was not sent"))
        self._ready.clear()

    def drop_failed(self) -> None:
        self._failed.clear()

    @property
    def is_empty(self) -> bool:
        return not (self._ready or self._failed or self.is_in_flight)

    @property
    def is_in_flight(self) -> bool:
        return any(self.in_flight.values())

    @property
    def has_failed(self) -> bool:
        """Whether batches wait to be sent again, or to be renumbered."""
        return bool(self._failed) or (self.may_renumber and bool(self.gaps))

    @property
    def oldest(self) -> Batch | None:
        """The batch that is to be sent next."""
        return self._ready[0] if self._ready else None

    @property
    def is_held(self) -> bool:
        """Whether the next batch has to wait for those that were sealed before it: until they are sent again, and then answered."""
        if self._failed:
            return True
        if not self._retried or self._ready[0].number <= self._retried:
            return False
        return any(batch.number <= self._retried for under_way in self.in_flight.values() for batches in under_way for batch in batches)

    def may_send(self) -> bool:
        """Whether a request may be sent now: not while others are under way after a failure."""
        return not (self.has_failed and self.is_in_flight)

    def to_renumber(self) -> list[tuple[TopicPartition, list[Batch]]]:
        """The partitions whose sequence numbers are to begin anew, with their batches in order. To be called when nothing is under way."""
        if not (self.may_renumber and self.gaps):
            return []
        queued: dict[TopicPartition, list[Batch]] = {partition: [] for partition in self.gaps}
        for batch in sorted([*self._failed, *self._ready], key=lambda batch: batch.number):
            if batch.partition in queued:
                queued[batch.partition].append(batch)
        # Brokers append in the order of the numbers: if the oldest is missing, so are those behind it.
        found = [(partition, batches) for partition, batches in queued.items() if not batches or not batches[0].is_open]
        for partition, _ in found:
            del self.gaps[partition]
        return found

    def retry_failed(self) -> None:
        """Puts the failed batches back to their places in the order of sealing."""
        self._retried = max((batch.number for batch in self._failed), default=self._retried)
        self._ready = deque(sorted([*self._failed, *self._ready], key=lambda batch: batch.number))
        self._failed = []

    def gather(self, broker_id: int) -> list[Batch]:
        """The batches of the next request to a leader: one a partition, the oldest first, as many as have room."""
        chosen: dict[TopicPartition, Batch] = {}
        room = REQUEST_BYTES_MAX
        is_retry = self._ready[0].number <= self._retried
        for batch in self._ready:
            if is_retry and batch.number > self._retried:
                break
            if batch.partition in chosen or (chosen and len(batch.data) > room):
                continue
            if self.metadata.leader_of(batch.partition) == broker_id:
                chosen[batch.partition] = batch
                room -= len(batch.data)
        return list(chosen.values())

    def request(self, batches: Iterable[Batch], transactional_id: str | None) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topics.setdefault(batch.partition.topic, []).append(PartitionProduceData(index=batch.partition.partition, records=batch.data))
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
        )

    def sending(self, broker_id: int, batches: list[Batch]) -> None:
        """Batches leave the queue before their request is written, so that a failed write finds them among those under way."""
        leaving = set(map(id, batches))
        for batch in batches:
            batch.is_open = True
        self._ready = deque(batch for batch in self._ready if id(batch) not in leaving)
        if self.acks != 0:
            self.in_flight.setdefault(broker_id, deque()).append(batches)

    # What became of batches

    def sent_unanswered(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Completes batches that were sent with acks=0; their offsets stay unknown."""
        return [Outcome(batch, -1, None) for batch in batches]

    def answered(self, broker_id: int, answer: ProduceResponse, now: float) -> list[Outcome]:
        """The batches that the answer to a broker's oldest request ends; others are sent again."""
        results = {(topic.name, result.index): result for topic in answer.responses for result in topic.partition_responses}
        outcomes: list[Outcome] = []
        for batch in self.in_flight[broker_id].popleft():
            result = results.get(batch.partition)
            if result is None:
                outcomes += self.failed([batch], refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {batch.partition}"), now)
            elif not result.error_code or result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                outcomes.append(Outcome(batch, result.base_offset, None))
            else:
                message = f"{batch.partition}: {result.error_message}" if result.error_message else str(batch.partition)
                outcomes += self.failed([batch], refused(error_code(result.error_code), message), now)
        return outcomes

    def connection_lost(self, broker_id: int, error: TransportError, now: float) -> list[Outcome]:
        """Sends all batches under way to the broker again: it is unknown which of them were appended."""
        under_way = self.in_flight.pop(broker_id, deque())
        return self.failed([batch for batches in under_way for batch in batches], error, now)

    def oldest_failed(self, error: KafkaError | TransportError, now: float) -> list[Outcome]:
        """The next batch could not be sent, because it has no leader or its broker is away."""
        return self.failed([self._ready.popleft()] if self._ready else [], error, now, is_unsent=True)

    def failed(self, batches: Sequence[Batch], error: KafkaError | TransportError, now: float, *, is_unsent: bool = False) -> list[Outcome]:
        """Queues failed batches again where that may help and there is time; the others end here."""
        outcomes = []
        for batch in batches:
            may_help = self._may_help(batch, error) or (is_unsent and isinstance(error, ConnectError))
            if may_help and now < batch.deadline:
                if isinstance(error, KafkaError) and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    batch.is_open = False
                self._failed.append(batch)
                self.metadata.forget([batch.partition])
            else:
                outcomes.append(Outcome(batch, -1, error))
                if self.is_idempotent:
                    self.gaps.setdefault(batch.partition, error)
        return outcomes

    def _may_help(self, batch: Batch, error: KafkaError | TransportError) -> bool:
        if isinstance(error, TransportError):
            return self.is_idempotent  # without sequence numbers a second try could append the batch twice
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The gap comes from an earlier batch that is sent again, or from one that has ended.
            is_behind_gap = self.may_renumber and batch.partition in self.gaps
            return is_behind_gap or any(earlier.partition == batch.partition for earlier in self._failed)
        return error.code in RETRIABLE
