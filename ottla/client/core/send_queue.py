"""Holds a producer's batches from the moment when they are sealed, so that no more records are added, until they are acknowledged. Decides
which batches are sent next, and what happens after an answer or a lost connection. Each partition has its own queue (`Lane`), so a
partition without a leader does not delay other partitions. A queue sends its batches in the order in which they were sealed:
- After a failure it sends nothing until all of its batches in flight are answered or lost. Then it sends the failed batches again, after a
  pause and with the same sequence numbers, so that the broker drops duplicates.
- Brokers remember only the last five batches of a producer in a partition. New batches therefore wait until all repeated batches are
  answered.
- While batches are in flight to one broker, the partition sends no batch to another broker, even if that is the new leader.
- A broker that does not know a producer yet accepts any sequence number. Therefore the first batch of a partition is sent alone: if it were
  refused, the broker would append the second batch before it.

A batch fails permanently after a refusal that is not retriable, and at its first failed attempt after the deadline. Without sequence
numbers it also fails if its connection is lost. A batch that a broker refuses because of its size, or because of one of its records, is
split before its deadline: each half is sent again with its sequence numbers, without a pause.

A batch that fails permanently causes a gap in the sequence numbers of its partition, and brokers refuse all later batches. These later
batches therefore get new numbers, in another epoch of the producer (`to_renumber`). Only batches that were certainly not appended are
renumbered. If it is unknown whether a batch was appended, it is sent again unchanged until a broker answers or its deadline is over. In a
transaction nothing is renumbered: the transaction has to be aborted.

An exception of a signal handler may end any method in the middle. Even then each batch is in `unsettled`, or its outcome is in `ended`,
because Python runs signal handlers only after a call, and between the removal from `unsettled` and the end of `ended.append` there is no
other call. `restore` rebuilds everything else from `unsettled`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from ottla.base.errors import ErrorCode, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.backoff import Backoff
from ottla.client.core.metadata import ClientMetadata
from ottla.client.core.topic_lists import each_partition, topic_list
from ottla.client.errors import RETRIABLE, ClientError, KafkaError, MalformedResponseError, OutcomeUnknownError, TransportError, refused
from ottla.wire.batch_header import SEQUENCE_MASK, read_batch_header
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record, encode_batch, read_records

REQUEST_BYTES_MAX = 1024 * 1024 - 1024
PRODUCE_TIMEOUT_MS = 30_000

_SPLIT = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})
"""Errors of a whole batch that one of its records may have caused."""


class Batch:
    """Records of one partition. A sealed batch has bytes, a number and a deadline in seconds."""

    __slots__ = ("count", "data", "deadline", "may_be_appended", "number", "opened", "partition", "records", "size")

    def __init__(self, partition: TopicPartition, opened: float) -> None:
        self.partition = partition
        self.opened = opened
        self.deadline = 0.0
        self.records: list[Record] = []
        self.size = 0
        self.count = 0
        self.number: tuple[int, ...] = ()  # position in the order of sealing: (7,), or (7, 0) and (7, 1) for the halves of batch 7
        self.may_be_appended = False  # it was sent, and no broker has refused it because of a gap in the sequence numbers
        self.data: bytearray = bytearray()

    @classmethod
    def of(cls, partition: TopicPartition, record: Record) -> Batch:
        """Returns an unsealed batch of one record, to report the record's outcome."""
        batch = cls(partition, 0.0)
        batch.records, batch.count = [record], 1
        return batch


class BatchOutcome(NamedTuple):
    """The outcome of a batch: the offset of its first record (-1: unknown), or the error. The batch may have been appended in spite of the
    error, unless its only attempt was refused permanently.
    """

    batch: Batch
    base_offset: int
    error: ClientError | None


class Sent(NamedTuple):
    """A request in flight, and when it was sent, in seconds."""

    batches: list[Batch]
    at: float


class _SendLane:
    """The batches of one partition, each list in the order of sealing."""

    __slots__ = ("backoff", "broker_id", "error", "failed", "resume_at", "retried", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Batch] = deque()
        self.under_way: list[Batch] = []
        self.failed: list[Batch] = []
        self.broker_id = -1  # the broker of the batches in flight
        self.retried: tuple[int, ...] = ()  # the number of the newest repeated batch
        self.resume_at = 0.0
        self.backoff = Backoff(None)
        self.error: KafkaError | TransportError | None = None  # the last failure since the last success

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.under_way or self.failed)

    def queued(self) -> list[Batch]:
        """Returns the batches that are not in flight, in order."""
        return sorted([*self.failed, *self.waiting], key=lambda batch: batch.number)

    def pause(self, error: KafkaError | TransportError, now: float) -> None:
        self.error = error
        self.resume_at = now + self.backoff.next_s()

    def requeue_failed(self) -> None:
        if self.failed:
            self.retried = max(batch.number for batch in self.failed)
            self.waiting, self.failed = deque(self.queued()), []

    def must_wait(self) -> bool:
        """Whether the next batch is new and must wait for repeated batches in flight."""
        is_new = self.waiting[0].number > self.retried
        return is_new and any(batch.number <= self.retried for batch in self.under_way)


class SendQueue:
    """See the module."""

    def __init__(self, metadata: ClientMetadata, *, acks: int, is_idempotent: bool, may_renumber: bool = False) -> None:
        self.metadata = metadata
        self.acks = acks
        self.is_idempotent = is_idempotent
        self.may_renumber = may_renumber
        self.gaps: dict[TopicPartition, ClientError] = {}
        """The partitions with a gap in their sequence numbers, and the error that caused it."""
        self.in_flight: dict[int, deque[Sent]] = {}
        """The requests in flight to each broker, oldest first."""
        self.size_bytes = 0
        """The bytes of all batches without an outcome."""
        self.ended: deque[BatchOutcome] = deque()
        """The outcomes that are not reported yet. A batch is added as soon as it ends, so no report is lost."""
        self.unsettled: dict[tuple[int, ...], Batch] = {}
        """The sealed batches without an outcome, by number."""
        self.known: set[TopicPartition] = set()
        """The partitions with a batch of this producer that a broker has acknowledged in this epoch."""
        self._lanes: dict[TopicPartition, _SendLane] = {}
        self._sealed = 0

    def next_number(self) -> tuple[int, ...]:
        self._sealed += 1
        return (self._sealed,)

    def add(self, batch: Batch) -> None:
        """Takes over a batch that is in `unsettled`."""
        self.size_bytes += len(batch.data)
        self._lane(batch.partition).waiting.append(batch)

    def _lane(self, partition: TopicPartition) -> _SendLane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _SendLane()
        return lane

    @property
    def is_empty(self) -> bool:
        return not self.unsettled

    # Choosing batches

    @property
    def record_count(self) -> int:
        """The number of records without an outcome."""
        return sum(batch.count for batch in self.unsettled.values())

    @property
    def obstacles(self) -> dict[TopicPartition, KafkaError | TransportError]:
        """The last error of each partition whose batches are sent again and again."""
        return {partition: lane.error for partition, lane in self._lanes.items() if lane.error is not None}

    def sendable(self, now: float) -> list[TopicPartition]:
        """Returns the partitions with a batch that may be sent now, the oldest batch first. Puts failed batches back into the queue."""
        found = [(lane.waiting[0].number, partition) for partition, lane in self._lanes.items() if self._may_send(partition, lane, now)]
        return [partition for _, partition in sorted(found)]

    def _may_send(self, partition: TopicPartition, lane: _SendLane, now: float) -> bool:
        if not (lane.waiting or lane.failed) or now < lane.resume_at:
            return False
        if lane.under_way and (lane.failed or (self.may_renumber and partition in self.gaps)):
            return False
        if lane.under_way and self.is_idempotent and partition not in self.known:
            return False
        lane.requeue_failed()
        return not lane.must_wait()

    def wake_at(self, now: float) -> float:
        """Returns when the first pause of a partition ends; infinite if no partition pauses."""
        return min((lane.resume_at for lane in self._lanes.values() if lane.resume_at > now), default=inf)

    def to_renumber(self) -> list[tuple[TopicPartition, list[Batch]]]:
        """Returns the gaps in sequence numbers that can be closed now: the partitions to continue at sequence number 0 in another epoch,
        with their batches in order. `renumbered` closes the gap of one partition.
        """
        found = []
        for partition in list(self.gaps) if self.may_renumber else ():
            lane = self._lanes.get(partition)
            queued = [] if lane is None else lane.queued()
            # Brokers append in the order of the numbers: if the oldest batch was not appended, neither were the later ones.
            if (lane is None or not lane.under_way) and (not queued or not queued[0].may_be_appended):
                found.append((partition, queued))
        return found

    def renumbered(self, partition: TopicPartition) -> None:
        self.known.discard(partition)
        del self.gaps[partition]

    def gather(self, broker_id: int, partitions: Iterable[TopicPartition]) -> list[Batch]:
        """Returns the batches of the next request to a broker: the oldest of each partition, together at most `REQUEST_BYTES_MAX`. The
        first batch may be larger; then it is the only one.
        """
        chosen: list[Batch] = []
        room = REQUEST_BYTES_MAX
        for partition in partitions:
            lane = self._lanes[partition]
            batch = lane.waiting[0]
            if (lane.under_way and lane.broker_id != broker_id) or (chosen and len(batch.data) > room):
                continue
            chosen.append(batch)
            room -= len(batch.data)
        return chosen

    def request(self, batches: Iterable[Batch], transactional_id: str | None) -> ProduceRequest:
        data = {batch.partition: PartitionProduceData(index=batch.partition.partition, records=batch.data) for batch in batches}
        topics = topic_list(TopicProduceData, data)
        return ProduceRequest(transactional_id=transactional_id, acks=self.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=topics)

    def sending(self, broker_id: int, batches: list[Batch], now: float) -> None:
        """Marks batches as in flight. Called before their request is written, so that a failed write is handled like a lost connection."""
        for batch in batches:
            batch.may_be_appended = True
            lane = self._lanes[batch.partition]
            lane.waiting.popleft()
            lane.under_way.append(batch)
            lane.broker_id = broker_id
        self.in_flight.setdefault(broker_id, deque()).append(Sent(batches, now))

    # Results of batches

    def sent_unanswered(self, broker_id: int) -> None:
        """Ends the batches of the newest request, which was sent with acks=0; their offsets stay unknown."""
        for batch in self._no_longer_under_way(self.in_flight[broker_id].pop()):
            self._end(batch, -1, None)

    def answered(self, broker_id: int, answer: ProduceResponse, now: float) -> None:
        """Processes the answer to a broker's oldest request: ends its batches, or queues them again."""
        results = dict(each_partition(answer.responses))
        for batch in self._no_longer_under_way(self.in_flight[broker_id].popleft()):
            result = results.get(batch.partition)
            if result is None:
                self._failed([batch], refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {batch.partition}"), now)
            elif not result.error_code or result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.known.add(batch.partition)
                lane = self._lane(batch.partition)
                if lane.error is not None:
                    lane.backoff, lane.error = Backoff(None), None
                self._end(batch, result.base_offset, None)
            else:
                message = f"{batch.partition}: {result.error_message}" if result.error_message else str(batch.partition)
                self._failed([batch], refused(error_code(result.error_code), message), now)

    def connection_lost(self, broker_id: int, error: TransportError, now: float) -> None:
        """Queues all batches in flight to the broker again. Ends the ones without sequence numbers or without time left."""
        for sent in self.in_flight.pop(broker_id, ()):
            self._failed(self._no_longer_under_way(sent), error, now)

    def not_sent(self, partitions: Sequence[TopicPartition], error: KafkaError | TransportError, now: float) -> None:
        """Pauses partitions without a reachable leader. Ends their batches after the deadline, or all batches after a permanent error."""
        may_help = error.is_retriable if isinstance(error, KafkaError) else not isinstance(error, MalformedResponseError)
        for partition in partitions:
            lane = self._lanes[partition]
            while lane.waiting and (now >= lane.waiting[0].deadline or not may_help):
                self._give_up(lane.waiting.popleft(), error)
            lane.pause(error, now)
        self.metadata.forget(partitions)

    def end_all(self, error: ClientError, *, only_unsent: bool = False) -> None:
        """Ends all batches. A batch that may have been appended ends with `OutcomeUnknownError`, other batches end with `error`.

        With `only_unsent` batches that may have been appended stay in the queue.
        """
        for partition, lane in list(self._lanes.items()):
            batches = lane.queued() if only_unsent else sorted([*lane.under_way, *lane.queued()], key=lambda batch: batch.number)
            for batch in batches:
                if batch.may_be_appended and only_unsent:
                    continue
                lost = OutcomeUnknownError(f"{partition}: {error}; the batch may have been appended") if batch.may_be_appended else error
                self._give_up(batch, lost)
            if only_unsent:
                lane.waiting = deque(batch for batch in lane.waiting if batch.may_be_appended)
                lane.failed = [batch for batch in lane.failed if batch.may_be_appended]
                self._drop_empty(partition)
        if not only_unsent:
            self._lanes.clear()
            self.in_flight.clear()

    def restore(self, error: TransportError, now: float) -> None:
        """Rebuilds the queue after an exception in the middle of a method. All connections are closed; `error` says why. Batches that may
        have been sent are handled as after a lost connection.
        """
        self._lanes, self.in_flight, self.size_bytes = {}, {}, 0
        for _, batch in sorted(self.unsettled.items()):
            self.add(batch)
            if batch.may_be_appended:
                self._lane(batch.partition).waiting.pop()
                self._failed([batch], error, now)

    def _no_longer_under_way(self, sent: Sent) -> list[Batch]:
        for batch in sent.batches:
            self._lanes[batch.partition].under_way.remove(batch)
        return sent.batches

    def _failed(self, batches: Sequence[Batch], error: KafkaError | TransportError, now: float) -> None:
        """Queues failed batches again, or splits them, if that may help and they have time left. Ends the others."""
        for batch in batches:
            lane = self._lane(batch.partition)
            if now >= batch.deadline:
                self._give_up(batch, error)
            elif isinstance(error, KafkaError) and error.code in _SPLIT and batch.count > 1:
                halves = self._halves(batch)
                lane.failed += halves
                others = {number: other for number, other in self.unsettled.items() if other is not batch}
                self.unsettled = {**others, **{half.number: half for half in halves}}
            elif self._may_help(batch, error):
                if isinstance(error, KafkaError) and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    batch.may_be_appended = False
                lane.failed.append(batch)
                lane.pause(error, now)
                self.metadata.forget([batch.partition])
            else:
                self._give_up(batch, error)

    def _may_help(self, batch: Batch, error: KafkaError | TransportError) -> bool:
        if isinstance(error, TransportError):
            return self.is_idempotent  # without sequence numbers a repetition could append the batch twice
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # An earlier batch is sent again, or has failed permanently.
            return (self.may_renumber and batch.partition in self.gaps) or bool(self._lane(batch.partition).failed)
        return error.code in RETRIABLE

    def _halves(self, batch: Batch) -> list[Batch]:
        """Splits a refused batch into two batches, which keep their sequence numbers."""
        halves = []
        for digit, data in enumerate(split(batch.data)):
            half = Batch(batch.partition, batch.opened)
            half.data, half.number, half.deadline = data, (*batch.number, digit), batch.deadline
            half.count = read_batch_header(data).record_count
            half.records = batch.records[: half.count] if digit == 0 else batch.records[-half.count :]
            self.size_bytes += len(data)
            halves.append(half)
        self.size_bytes -= len(batch.data)
        return halves

    def _give_up(self, batch: Batch, error: ClientError) -> None:
        if self.is_idempotent:
            self.gaps.setdefault(batch.partition, error)
        self._end(batch, -1, error)

    def _end(self, batch: Batch, base_offset: int, error: ClientError | None) -> None:
        outcome = BatchOutcome(batch, base_offset, error)
        del self.unsettled[batch.number]
        self.ended.append(outcome)
        self.size_bytes -= len(batch.data)
        self._drop_empty(batch.partition)

    def _drop_empty(self, partition: TopicPartition) -> None:
        lane = self._lanes.get(partition)
        if lane is not None and lane.is_empty:
            del self._lanes[partition]


def split(data: bytearray) -> tuple[bytearray, bytearray]:
    """Splits an encoded batch of several records into two, with the same codec, producer and sequence numbers."""
    header, records = read_batch_header(data), list(read_records(data))
    middle = len(records) // 2

    def encoded(some: Sequence[Record], skipped: int) -> bytearray:
        return encode_batch(
            some,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=(header.base_sequence + skipped) & SEQUENCE_MASK if header.base_sequence >= 0 else -1,
            is_transactional=header.is_transactional,
        )

    return encoded(records[:middle], 0), encoded(records[middle:], middle)
