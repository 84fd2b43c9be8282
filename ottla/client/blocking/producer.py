"""A producer: records in, batches out, in order, each exactly once if the broker lets it be idempotent.

`produce` gathers records by partition; a full batch is encoded and sent without waiting, up to `in_flight_max` requests a broker. `poll`
sends what has lingered and takes in answers; `flush` waits for all. There is no thread: whoever produces slowly calls `poll` in between.

Order after a failure: nothing new is sent until every request under way has been answered or lost; then the failed batches go out again in
the order in which they were made, with the same sequence numbers, so that the broker drops what it had already written. A batch that fails
for good is told to `on_delivery`, or else raised by the next call.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection
from ottla.client.blocking.producer_identity import TRANSACTION_TIMEOUT_MS, ProducerIdentity
from ottla.client.core.partitioner import StickyPartitioner, partition_for_key
from ottla.client.errors import RETRIABLE, KafkaError, TransportError, error_code, refused
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import CODEC_NAMES, Headers, Record, encode_batch

BATCH_BYTES = 128 * 1024
REQUEST_BYTES_MAX = 1024 * 1024 - 1024
IN_FLIGHT_MAX = 5
DELIVERY_TIMEOUT_S = 120.0
LINGER_S = 0.005
ACKS_ALL = -1

_RECORD_OVERHEAD_BYTES = 12
_BACKOFF_S = 0.05
_PRODUCE_TIMEOUT_MS = 30_000


class Delivery(NamedTuple):
    """What became of a batch: where it begins in its partition, or why it is lost."""

    partition: TopicPartition
    base_offset: int
    records: Sequence[Record]
    error: KafkaError | TransportError | None


class _Batch:
    """Records of one partition on their way."""

    __slots__ = ("count", "data", "deadline", "number", "opened", "partition", "records", "size")

    def __init__(self, partition: TopicPartition, opened: float) -> None:
        self.partition = partition
        self.opened = opened
        self.deadline = 0.0
        self.records: list[Record] = []
        self.size = 0
        self.count = 0
        self.number = 0
        self.data: bytearray | None = None


class Producer:
    """Sends records in batches, in order, each exactly once unless told otherwise. Not for use by two threads at once.

    There is no thread: a program that produces slowly calls `poll` in between. `with` flushes at the end.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: str = "none",
        level: int | None = None,
        is_idempotent: bool = True,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        batch_bytes: int = BATCH_BYTES,
        linger_s: float = LINGER_S,
        in_flight_max: int = IN_FLIGHT_MAX,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> None:
        self.cluster = cluster
        self.acks = acks
        self.codec = CODEC_NAMES.index(codec)
        self.level = level
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.in_flight_max = in_flight_max
        self.delivery_timeout_s = delivery_timeout_s
        self.on_delivery = on_delivery
        self.delivered = 0
        self.bytes_sent = 0
        self.identity: ProducerIdentity | None = None
        if transactional_id is not None or (is_idempotent and acks == ACKS_ALL):
            self.identity = ProducerIdentity(cluster, transactional_id=transactional_id, timeout_ms=transaction_timeout_ms)
        self._is_transactional = transactional_id is not None
        self._has_identity = False
        self._sticky = StickyPartitioner(random.Random().choice)
        self._partitions: dict[str, list[int]] = {}
        self._open: dict[TopicPartition, _Batch] = {}
        self._ready: deque[_Batch] = deque()
        self._failed: list[_Batch] = []
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, deque[list[_Batch]]] = {}
        self._numbers = 0
        self._failure: KafkaError | TransportError | None = None

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._drop_connections()

    # Producing

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Adds a record to its partition's batch; a batch that becomes full is sent."""
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        if partition < 0:
            partitions = self._partitions.get(topic) or self._learn(topic)
            partition = self._sticky.current(topic, partitions) if key is None else partitions[partition_for_key(key, len(partitions))]
        target = TopicPartition(topic, partition)
        batch = self._open.get(target)
        if batch is None:
            batch = self._open[target] = _Batch(target, time.monotonic())
        batch.records.append(Record(0, timestamp, key, value, headers))
        batch.size += _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        if headers:
            batch.size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        if batch.size >= self.batch_bytes:
            self._seal(batch)
            self._pump()

    def produce_values(self, topic: str, values: Iterable[bytes]) -> None:
        """Many records without keys, in a loop as short as can be; they share one timestamp."""
        timestamp = time.time_ns() // 1_000_000
        limit = self.batch_bytes
        batch: _Batch | None = None
        for value in values:
            if batch is None:
                partitions = self._partitions.get(topic) or self._learn(topic)
                target = TopicPartition(topic, self._sticky.current(topic, partitions))
                batch = self._open.get(target)
                if batch is None:
                    batch = self._open[target] = _Batch(target, time.monotonic())
                append, size = batch.records.append, batch.size
            append(Record(0, timestamp, None, value, ()))
            size += len(value) + _RECORD_OVERHEAD_BYTES
            if size >= limit:
                batch.size = size
                self._seal(batch)
                self._pump()
                batch = None
        if batch is not None:
            batch.size = size

    def poll(self, timeout_s: float = 0.0) -> None:
        """Sends batches that have lingered long enough and takes in answers, waiting for one at most `timeout_s`."""
        if self._open:
            before = time.monotonic() - self.linger_s
            for batch in [found for found in self._open.values() if found.opened <= before]:
                self._seal(batch)
        self._pump(timeout_s)

    def flush(self) -> None:
        """Sends everything and waits until all of it is answered for."""
        for batch in list(self._open.values()):
            self._seal(batch)
        while self._ready or self._failed or any(self._in_flight.values()):
            self._send_ready()
            self._take_answers(self.cluster.timeout_s)
        self._raise_failure()

    def close(self) -> None:
        """Flushes; an open transaction is aborted."""
        try:
            self.flush()
            if self.identity is not None and self.identity.is_open:
                self.identity.end(is_commit=False)
        finally:
            self._drop_connections()

    def _drop_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Transactions

    def begin(self) -> None:
        """Opens a transaction; what follows belongs to it until `commit` or `abort`."""
        identity = self._transactional()
        self._identify()
        identity.begin()

    def commit(self) -> None:
        """Writes what is left and commits."""
        self.flush()
        self._transactional().end(is_commit=True)

    def abort(self) -> None:
        """Throws away what was not sent yet and aborts."""
        self._open.clear()
        self._ready.clear()
        try:
            self.flush()
        except (KafkaError, TransportError):
            self._failed.clear()
        self._transactional().end(is_commit=False)

    def abandon(self) -> None:
        """Aborts after an interruption, which may have come at any place, such as in the middle of an answer.

        Nothing that is under way is waited for and no connection is used again. The id is taken anew instead of sending an end: that
        aborts whatever the coordinator knows to be open, and fences what may still be on its way.
        """
        for waiting in (self._open, self._ready, self._failed, self._in_flight):
            waiting.clear()
        self._drop_connections()
        self.cluster.close()
        identity = self._transactional()
        identity.initialize()

    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], *, member_id: str = "", generation: int = -1) -> None:
        """Commits a consumer's offsets as part of the transaction."""
        self._transactional().add_offsets(group_id, offsets, member_id=member_id, generation=generation)

    def _transactional(self) -> ProducerIdentity:
        if self.identity is None or not self._is_transactional:
            raise refused(ErrorCode.INVALID_TXN_STATE, "this producer has no transactional id")
        return self.identity

    # Batches

    def _learn(self, topic: str) -> list[int]:
        self.cluster.topic(topic, auto_create=True)
        found = self._partitions[topic] = self.cluster.partitions(topic)
        return found

    def _identify(self) -> None:
        if self.identity is not None and not self._has_identity:
            self.identity.initialize()
            self._has_identity = True

    def _seal(self, batch: _Batch) -> None:
        """The batch takes no more records: it gets its sequence numbers and its bytes."""
        self._identify()
        del self._open[batch.partition]
        identity = self.identity
        records = batch.records
        batch.count = len(records)
        batch.deadline = time.monotonic() + self.delivery_timeout_s
        self._numbers += 1
        batch.number = self._numbers
        if identity is None:
            batch.data = encode_batch(records, codec=self.codec, level=self.level)
        else:
            batch.data = encode_batch(
                records,
                codec=self.codec,
                level=self.level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=identity.take_sequences(batch.partition, batch.count),
                is_transactional=self._is_transactional,
            )
        if self.on_delivery is None:
            batch.records = []
        topic = batch.partition.topic
        self._sticky.move_on(topic, self._partitions.get(topic, ()))
        self._ready.append(batch)

    # Sending and taking answers

    def _pump(self, timeout_s: float = 0.0) -> None:
        self._send_ready()
        self._take_answers(timeout_s)
        while self._ready:
            self._take_answers(self.cluster.timeout_s)
            self._send_ready()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _send_ready(self) -> None:
        if self._failed:
            if any(self._in_flight.values()):
                return
            self._ready = deque(sorted([*self._failed, *self._ready], key=lambda batch: batch.number))
            self._failed = []
            time.sleep(_BACKOFF_S)
        while self._ready:
            try:
                broker_id = self.cluster.leader(self._ready[0].partition)
                if len(self._in_flight.get(broker_id, ())) >= self.in_flight_max:
                    return
                self._send(broker_id, self._gather(broker_id))
            except (KafkaError, TransportError) as error:
                self._retry_or_lose([self._ready.popleft()] if self._ready else [], error)
                return

    def _gather(self, broker_id: int) -> list[_Batch]:
        """One batch a partition, for one leader, the oldest first."""
        chosen: dict[TopicPartition, _Batch] = {}
        room = REQUEST_BYTES_MAX
        for batch in self._ready:
            assert batch.data is not None
            if batch.partition in chosen or (chosen and len(batch.data) > room):
                continue
            if self.cluster.leader(batch.partition) == broker_id:
                chosen[batch.partition] = batch
                room -= len(batch.data)
        return list(chosen.values())

    def _send(self, broker_id: int, batches: list[_Batch]) -> None:
        if self._is_transactional and self.identity is not None:
            self.identity.add([batch.partition for batch in batches])
        connection = self._connection(broker_id)
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topics.setdefault(batch.partition.topic, []).append(PartitionProduceData(index=batch.partition.partition, records=batch.data))
        request = ProduceRequest(
            transactional_id=self.identity.transactional_id if self.identity is not None else None,
            acks=self.acks,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=partitions) for topic, partitions in topics.items()],
        )
        # Sent means gone from the queue, even if the sending fails: the failure then finds it among those under way.
        sent = set(map(id, batches))
        self._ready = deque(batch for batch in self._ready if id(batch) not in sent)
        self.bytes_sent += sum(len(batch.data or b"") for batch in batches)
        under_way = self._in_flight.setdefault(broker_id, deque())
        if self.acks != 0:
            under_way.append(batches)
        try:
            connection.send(request, is_answered=self.acks != 0)
        except TransportError as error:
            self._lost(broker_id, error)
            return
        if self.acks == 0:
            for batch in batches:
                self._delivered(batch, -1)

    def _connection(self, broker_id: int) -> Connection:
        """A connection of our own: answers to other questions must not stand in line behind ours."""
        known = self._connections.get(broker_id)
        if known is None or not known.is_open:
            known = self._connections[broker_id] = self.cluster.new_connection(broker_id)
        return known

    def _take_answers(self, timeout_s: float) -> None:
        """Takes in every answer that is there; waits for the first one if `timeout_s` is given."""
        for broker_id, under_way in list(self._in_flight.items()):
            while under_way:
                connection = self._connections[broker_id]
                if connection.is_open and not connection.is_readable(timeout_s):
                    if timeout_s < self.cluster.timeout_s:
                        break
                    connection.close()
                timeout_s = 0.0
                try:
                    answer = connection.receive()
                except TransportError as error:
                    self._lost(broker_id, error)
                    break
                self._settle(under_way.popleft(), answer)

    def _lost(self, broker_id: int, error: TransportError) -> None:
        """The connection is gone: nobody knows which of the batches under way were written, so all go again."""
        under_way = self._in_flight.pop(broker_id, deque())
        self._connections.pop(broker_id).close()
        self._retry_or_lose([batch for batches in under_way for batch in batches], error)

    def _settle(self, batches: list[_Batch], answer: ProduceResponse) -> None:
        results = {(topic.name, result.index): result for topic in answer.responses for result in topic.partition_responses}
        for batch in batches:
            result = results.get(batch.partition)
            if result is None:
                self._retry_or_lose([batch], refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {batch.partition}"))
            elif not result.error_code or result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._delivered(batch, result.base_offset)
            else:
                message = f"{batch.partition}: {result.error_message}" if result.error_message else str(batch.partition)
                self._retry_or_lose([batch], refused(error_code(result.error_code), message))

    def _retry_or_lose(self, batches: list[_Batch], error: KafkaError | TransportError) -> None:
        """Batches go again when that may help and there is time; a gap in the sequence can only come from one that goes again."""
        now = time.monotonic()
        for batch in batches:
            may_help = isinstance(error, TransportError) or error.code in RETRIABLE
            if isinstance(error, KafkaError) and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                may_help = any(earlier.partition == batch.partition for earlier in self._failed)
            if isinstance(error, TransportError) and self.identity is None:
                may_help = False  # without sequence numbers a second try could write the batch twice
            if may_help and now < batch.deadline:
                self._failed.append(batch)
                self.cluster.forget([batch.partition])
            elif self.on_delivery is not None:
                self.on_delivery(Delivery(batch.partition, -1, batch.records, error))
            elif self._failure is None:
                self._failure = error

    def _delivered(self, batch: _Batch, base_offset: int) -> None:
        self.delivered += batch.count
        if self.on_delivery is not None:
            self.on_delivery(Delivery(batch.partition, base_offset, batch.records, None))
