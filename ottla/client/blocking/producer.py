"""A producer: records in, batches out, in order, each exactly once unless it is not to be idempotent.

`produce` gathers records by partition; a full batch is encoded and sent without waiting, up to `in_flight_max` requests a broker. `poll`
sends what has lingered and takes in answers; `flush` waits for all. What is sent when, and again after a failure, is decided by
`core/send_queue.py`. A batch that fails for good is reported to `on_delivery`, or else raised by the next call.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import Connection
from ottla.client.blocking.producer_identity import TRANSACTION_TIMEOUT_MS, ProducerIdentity
from ottla.client.core.partitioner import StickyPartitioner, partition_for_key
from ottla.client.core.send_queue import Batch, Outcome, SendQueue
from ottla.client.errors import KafkaError, TransportError, refused
from ottla.wire.batch_header import stamp_producer
from ottla.wire.records import CODEC_NAMES, Headers, Record, encode_batch

BATCH_BYTES = 128 * 1024
IN_FLIGHT_MAX = 5
DELIVERY_TIMEOUT_S = 120.0
LINGER_S = 0.005
ACKS_ALL = -1

_RECORD_OVERHEAD_BYTES = 12
_BACKOFF_S = 0.05


class Delivery(NamedTuple):
    """The result of a batch: the offset of its first record, or the error."""

    partition: TopicPartition
    base_offset: int
    records: Sequence[Record]
    error: KafkaError | TransportError | None


GROWTH_S = 1.0
"""So long after a topic has grown, some broker may still answer with the partitions that it had."""


class Producer:
    """Sends records in batches, in order, each exactly once by default. Not for use by two threads at once.

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
        self._open: dict[TopicPartition, Batch] = {}
        has_identity = self.identity is not None
        self._queue = SendQueue(
            cluster.metadata, acks=acks, is_idempotent=has_identity, may_renumber=has_identity and not self._is_transactional
        )
        self._connections: dict[int, Connection] = {}
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
        """Adds a record to its partition's batch; a batch that becomes full is sent. Raises `KafkaError` if there is no such partition."""
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        if partition < 0:
            partitions = self._partitions.get(topic) or self._learn(topic)
            partition = self._sticky.current(topic, partitions) if key is None else partitions[partition_for_key(key, len(partitions))]
        target = TopicPartition(topic, partition)
        batch = self._open.get(target)
        if batch is None:
            self._check_partition(target)
            batch = self._open[target] = Batch(target, time.monotonic())
        batch.records.append(Record(0, timestamp, key, value, headers))
        batch.size += _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        if headers:
            batch.size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        if batch.size >= self.batch_bytes:
            self._seal(batch)
            self._pump()

    def produce_values(self, topic: str, values: Iterable[bytes]) -> None:
        """Adds many records without keys, quicker than `produce`; they share one timestamp."""
        timestamp = time.time_ns() // 1_000_000
        limit = self.batch_bytes
        batch: Batch | None = None
        for value in values:
            if batch is None:
                partitions = self._partitions.get(topic) or self._learn(topic)
                target = TopicPartition(topic, self._sticky.current(topic, partitions))
                batch = self._open.get(target)
                if batch is None:
                    batch = self._open[target] = Batch(target, time.monotonic())
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
        """Sends everything and waits until every record is acknowledged or has failed."""
        for batch in list(self._open.values()):
            self._seal(batch)
        while not self._queue.is_empty:
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
        """Flushes and commits. Raises the error of a batch of the transaction that failed: then it can only be aborted."""
        self.flush()
        for error in self._queue.gaps.values():
            raise error
        self._transactional().end(is_commit=True)

    def abort(self) -> None:
        """Drops what was not sent yet and aborts."""
        identity = self._transactional()
        self._open.clear()
        self._queue.drop_unsent()
        try:
            self.flush()
        except (KafkaError, TransportError):
            self._queue.drop_failed()
        identity.end(is_commit=False)
        if self._queue.gaps:  # only another epoch begins the sequence numbers anew
            identity.initialize(identity.producer_id, identity.epoch)
            self._queue.gaps.clear()

    def abandon(self) -> None:
        """Aborts after an interruption at any place, such as in the middle of an answer.

        It waits for nothing that is under way and uses no connection again. The id is initialized anew instead of sending an end: that
        aborts the transaction that the coordinator knows, and fences requests that are still on their way.
        """
        self._open.clear()
        self._queue.clear()
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

    def _check_partition(self, target: TopicPartition) -> None:
        """Raises `KafkaError` for a partition that the topic does not have: its batch would wait for a leader until it times out."""
        if target.partition in (self._partitions.get(target.topic) or self._learn(target.topic)):
            return
        deadline = time.monotonic() + GROWTH_S
        while True:
            self.cluster.forget([target])
            if target.partition in self._learn(target.topic):
                return
            if time.monotonic() >= deadline:
                raise self.cluster.metadata.no_leader(target)
            time.sleep(GROWTH_S / 10)

    def _identify(self) -> None:
        if self.identity is not None and not self._has_identity:
            self.identity.initialize()
            self._has_identity = True

    def _seal(self, batch: Batch) -> None:
        """The batch takes no more records: it gets its sequence numbers and its bytes."""
        self._identify()
        del self._open[batch.partition]
        identity = self.identity
        records = batch.records
        batch.count = len(records)
        batch.deadline = time.monotonic() + self.delivery_timeout_s
        if identity is None:
            batch.data = encode_batch(records, codec=self.codec, level=self.level)
        else:
            batch.data = encode_batch(
                records,
                codec=self.codec,
                level=self.level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch_of(batch.partition),
                base_sequence=identity.take_sequences(batch.partition, batch.count),
                is_transactional=self._is_transactional,
            )
        if self.on_delivery is None:
            batch.records = []
        topic = batch.partition.topic
        self._sticky.move_on(topic, self._partitions.get(topic, ()))
        self._queue.add(batch)

    # Sending and taking answers

    def _pump(self, timeout_s: float = 0.0) -> None:
        self._send_ready()
        self._take_answers(timeout_s)
        while self._queue.oldest is not None:
            self._take_answers(self.cluster.timeout_s)
            self._send_ready()
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _send_ready(self) -> None:
        queue = self._queue
        if queue.has_failed:
            if not queue.may_send():
                return
            self._renumber()
            queue.retry_failed()
            time.sleep(_BACKOFF_S)
        while (oldest := queue.oldest) is not None and not queue.is_held:
            try:
                broker_id = self.cluster.leader(oldest.partition)
                if len(queue.in_flight.get(broker_id, ())) >= self.in_flight_max:
                    return
                self._send(broker_id, queue.gather(broker_id))
            except (KafkaError, TransportError) as error:
                self._report(queue.oldest_failed(error, time.monotonic()))
                return

    def _renumber(self) -> None:
        """Gives what stands behind a batch that has failed for good the sequence numbers of another epoch."""
        for partition, batches in self._queue.to_renumber():
            assert self.identity is not None, "only an idempotent producer has sequence numbers"
            if not self.identity.begin_epoch(partition):
                self._queue.may_renumber = False
                return
            for batch in batches:
                stamp_producer(
                    batch.data,
                    0,
                    len(batch.data),
                    producer_id=self.identity.producer_id,
                    producer_epoch=self.identity.epoch_of(partition),
                    base_sequence=self.identity.take_sequences(partition, batch.count),
                    is_transactional=False,
                )

    def _send(self, broker_id: int, batches: list[Batch]) -> None:
        if self._is_transactional and self.identity is not None:
            self.identity.add([batch.partition for batch in batches])
        connection = self._connection(broker_id)
        request = self._queue.request(batches, self.identity.transactional_id if self.identity is not None else None)
        self._queue.sending(broker_id, batches)
        self.bytes_sent += sum(len(batch.data) for batch in batches)
        try:
            connection.send(request, is_answered=self.acks != 0)
        except TransportError as error:
            self._lost(broker_id, error)
            return
        if self.acks == 0:
            self._report(self._queue.sent_unanswered(batches))

    def _connection(self, broker_id: int) -> Connection:
        """A connection of the producer's own: a produce that waits for its acknowledgement must not hold up other requests."""
        known = self._connections.get(broker_id)
        if known is None or not known.is_open:
            known = self._connections[broker_id] = self.cluster.new_connection(broker_id)
        return known

    def _take_answers(self, timeout_s: float) -> None:
        """Takes in every answer that is there; waits for the first one if `timeout_s` is given."""
        for broker_id, under_way in list(self._queue.in_flight.items()):
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
                self._report(self._queue.answered(broker_id, answer, time.monotonic()))

    def _lost(self, broker_id: int, error: TransportError) -> None:
        self._connections.pop(broker_id).close()
        self._report(self._queue.connection_lost(broker_id, error, time.monotonic()))

    def _report(self, outcomes: Iterable[Outcome]) -> None:
        for batch, base_offset, error in outcomes:
            if error is None:
                self.delivered += batch.count
            if self.on_delivery is not None:
                self.on_delivery(Delivery(batch.partition, base_offset, batch.records, error))
            elif error is not None and self._failure is None:
                self._failure = error
