"""`Producer`: gathers records into batches and sends them in order, exactly once and with acks=all (unless `is_idempotent` is off).

`produce` gathers records by partition. A full batch is encoded and sent without waiting, with up to `in_flight_max` requests to each broker
in flight. `poll` sends batches that have lingered and processes answers; `flush` waits for all batches. `core/send_queue.py` decides when a
batch is sent, and sent again. A partition without a leader, or with a silent leader, does not delay other partitions
(`blocking/routes.py`).

The outcome of each record is reported once (`blocking/deliveries.py`), also after an exception of a signal handler in the middle of a call
(`blocking/interruptions.py`), for records that cannot be encoded, and for records that `close`, `abort` or an exception in `with` drops.
If `produce` raises before it accepts its record, nothing is reported for that record.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from math import inf

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection, first_ready
from ottla.client.blocking.deliveries import Deliveries, Delivery
from ottla.client.blocking.interruptions import Change
from ottla.client.blocking.owner import CallOwner, owned
from ottla.client.blocking.produced_topics import METADATA_AGE_S, ProducedTopics
from ottla.client.blocking.routes import Routes
from ottla.client.core.arguments import checked
from ottla.client.core.encoding import RECORD_OVERHEAD_BYTES, Encoding, check_record
from ottla.client.core.partitioner import StickyPartitioner, partition_for_key
from ottla.client.core.producer_identity import TRANSACTION_TIMEOUT_MS, ProducerIdentity
from ottla.client.core.send_queue import Batch, BatchOutcome, SendQueue
from ottla.client.errors import ClientError, KafkaError, RequestTimeoutError, TransportError, UsageError, refused
from ottla.wire.batch_header import stamp_producer
from ottla.wire.records import CODEC_NAMES, Headers, Record

__all__ = ["ACKS_ALL", "BATCH_BYTES", "IN_FLIGHT_MAX", "Delivery", "Producer"]

BATCH_BYTES = 128 * 1024
BUFFER_BYTES_MAX = 32 * 1024 * 1024
"""Limit of the sealed batches without an outcome, in bytes, like Kafka's `buffer.memory`. Above it `produce` waits."""
IN_FLIGHT_MAX = 5
DELIVERY_TIMEOUT_S = 120.0
LINGER_S = 0.005
ACKS_ALL = -1

_TRANSACTION = ("transaction",)
"""The key of the background call that adds partitions to the transaction. Other requests of the transaction wait for its end."""
_STEP_S = 1.0
"""Maximum time of one step of a longer wait, in seconds, so that request timeouts are noticed."""


class Producer:
    """Sends records in batches, in order, each exactly once by default. One thread at a time may use it; a forked child may not.

    There is no sender thread: a program that produces slowly calls `poll` in between. `poll(0)` does not wait for any broker. The end of
    `with` closes the producer. After an exception in `with` nothing more is sent, an open transaction is aborted, and the other records
    are reported as failed.
    """

    @checked
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
        metadata_age_s: float = METADATA_AGE_S,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> None:
        for name, value, known in (("acks", acks, (0, 1, ACKS_ALL)), ("codec", codec, CODEC_NAMES)):
            if value not in known:
                raise UsageError(f"{name} is one of {', '.join(map(str, known))}, not {value!r}")
        self.cluster = cluster
        self.owner = CallOwner("producer")
        self.acks = acks
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.in_flight_max = in_flight_max
        self.delivery_timeout_s = delivery_timeout_s
        self.bytes_sent = 0
        self.identity: ProducerIdentity | None = None
        if transactional_id is not None or (is_idempotent and acks == ACKS_ALL):
            self.identity = ProducerIdentity(cluster.core, transactional_id=transactional_id, timeout_ms=transaction_timeout_ms)
        self._is_transactional = transactional_id is not None
        self._encoding = Encoding(CODEC_NAMES.index(codec), level, self._is_transactional)
        self._sticky = StickyPartitioner(random.Random().choice)
        self._open: dict[TopicPartition, Batch] = {}
        self._open_sticky: dict[str, Batch] = {}
        """The open batch of each topic for records without a key or partition: most records need this one look-up."""
        has_id = self.identity is not None
        self._queue = SendQueue(cluster.metadata, acks=acks, is_idempotent=has_id, may_renumber=has_id and not self._is_transactional)
        self._deliveries = Deliveries(self._queue.ended, on_delivery)
        self._routes = Routes(cluster)
        self._topics = ProducedTopics(cluster, self._routes.background_calls, metadata_age_s)
        self._change = Change(self._repair)

    @property
    def delivered(self) -> int:
        """The number of records that were acknowledged, or sent with acks=0."""
        return self._deliveries.delivered

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._leave_behind()

    # Producing

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, *,
        partition: int = -1, timestamp: int | None = None, headers: Headers = (),
    ) -> None:  # fmt: skip
        """Adds a record to its partition's batch, and sends the batch if it is full. Waits while the buffer is full, and for the metadata
        of a new topic, which the broker may create.

        Raises `UsageError` for wrong types, and `KafkaError` if the partition does not exist or no transaction is open. It may also raise
        the error of an earlier batch. In all these cases it does not send this record.
        """
        has_target = topic.__class__ is str and partition.__class__ is int
        if has_target and value.__class__ is bytes and (key is None or key.__class__ is bytes) and timestamp is None and not headers:
            timestamp = time.time_ns() // 1_000_000
            size = RECORD_OVERHEAD_BYTES + len(value) + (0 if key is None else len(key))
        else:
            timestamp = time.time_ns() // 1_000_000 if timestamp is None else timestamp
            value, key, size = check_record(topic, partition, value, key, timestamp, headers)
        if not self.owner.acquire(False):
            raise self.owner.used_twice()
        try:
            batch = self._open_sticky.get(topic) if key is None and partition < 0 else None
            if batch is None or batch.size + size > self.batch_bytes:
                batch = self._batch_for(topic, key, partition, size)
            batch.records.append(Record(0, timestamp, key, value, headers))
            batch.size += size
            if batch.size >= self.batch_bytes:
                self._seal(batch)
                self._step(0.0)
        finally:
            self.owner.release()

    @owned
    def produce_values(self, topic: str, values: Iterable[bytes]) -> None:
        """Adds many records without keys, faster than `produce`. They share one timestamp, and values with a length are not checked."""
        new, timestamp, limit = tuple.__new__, time.time_ns() // 1_000_000, self.batch_bytes
        batch: Batch | None = None
        size = 0
        try:
            for value in values:
                try:
                    size += len(value) + RECORD_OVERHEAD_BYTES
                except TypeError:
                    raise UsageError(f"a value is bytes, not {type(value).__name__}: encode it first") from None
                if batch is None or size > limit:
                    if batch is not None:
                        full, batch = batch, None
                        self._seal(full)
                        self._step(0.0)
                    size = len(value) + RECORD_OVERHEAD_BYTES
                    target = TopicPartition(topic, self._sticky.current(topic, self._topics.partitions(topic)))
                    known = self._open.get(target)
                    batch = self._begin_batch(target) if known is None or known.size + size > limit else known
                    append, size = batch.records.append, batch.size + size
                append(new(Record, (0, timestamp, None, value, ())))  # faster than `Record(...)`, which is a Python function
            if batch is not None and size >= limit:
                full, batch = batch, None
                self._seal(full)
                self._step(0.0)
        finally:
            if batch is not None:
                batch.size = size

    @owned
    def poll(self, timeout_s: float = 0.0) -> None:
        """Sends lingering batches and processes answers. Waits at most `timeout_s` for an answer. Raises the first error of a batch since
        an error was last raised; with `on_delivery`, the first exception of that function."""
        if self._open:
            before = time.monotonic() - self.linger_s
            for batch in [found for found in self._open.values() if found.opened <= before]:
                self._seal(batch)
        self._step(timeout_s)
        self._deliveries.raise_failure()

    @owned
    def flush(self, timeout_s: float = inf) -> int:
        """Sends all batches and waits, at most `timeout_s`, until each is acknowledged or has failed. Returns the number of records in the
        remaining batches. Raises errors like `poll`."""
        end = time.monotonic() + timeout_s
        for batch in list(self._open.values()):
            self._seal(batch)
        left = timeout_s
        while not self._queue.is_empty and left >= 0:
            self._step(min(_STEP_S, left))
            left = end - time.monotonic()
        self._deliveries.raise_failure()
        return self._queue.record_count

    @checked
    def obstacles(self) -> dict[TopicPartition, KafkaError | TransportError]:
        """Returns the last error of each partition whose records could not be sent yet, but are sent again and again."""
        return self._queue.obstacles

    @checked
    def close(self) -> None:
        """Flushes, and aborts an open transaction. In a forked child it only closes the inherited sockets."""
        if self.owner.is_in_child:
            self._routes.close()
            return
        with ExitStack() as steps:
            steps.callback(self._leave_behind)
            self.flush()

    @owned
    def _leave_behind(self) -> None:
        """Reports the remaining records as failed without sending them, and aborts an open transaction."""
        with ExitStack() as steps:
            steps.callback(self._routes.close)
            if self._is_transactional and self.identity is not None and self.identity.is_open:
                steps.callback(lambda: self.cluster.run(self._transactional().renew()))
            self._end_all(ClientError("the producer was closed before the record was sent"))
            self._deliveries.report()

    def _end_all(self, error: ClientError, *, only_unsent: bool = False) -> None:
        with self._change:
            self._open_sticky.clear()
            for partition, batch in list(self._open.items()):
                batch.count, outcome = len(batch.records), BatchOutcome(batch, -1, error)
                if batch.data:  # an interrupted `_seal` may have taken its sequence numbers
                    self._queue.gaps.setdefault(partition, error)
                del self._open[partition]
                if batch.count:
                    self._queue.ended.append(outcome)
            self._queue.end_all(error, only_unsent=only_unsent)

    # Transactions

    @owned
    def begin(self) -> None:
        """Opens a transaction. Later records belong to it until `commit` or `abort`."""
        identity = self._transactional()
        self.cluster.run(identity.identify())
        identity.begin()

    @owned
    def commit(self) -> None:
        """Flushes and commits, repeating the commit if its answer is lost.

        If a batch of the transaction failed, raises its error; then only `abort` is possible. Raises `OutcomeUnknownError` if no answer
        shows whether the transaction was committed. Then the next `begin` or `abort` initializes the id again, which ends the transaction
        if it is still open.
        """
        self.flush()
        for error in self._queue.gaps.values():
            raise error
        self.cluster.run(self._transactional().end(is_commit=True))

    @owned
    def abort(self) -> None:
        """Drops unsent batches, waits for the outcome of the sent ones, and aborts."""
        identity = self._transactional()
        self._end_all(refused(ErrorCode.TRANSACTION_ABORTABLE, "the transaction is aborted"), only_unsent=True)
        while _TRANSACTION in self._routes.background_calls or not self._queue.is_empty:
            self._step(_STEP_S)
        identity.has_gap = identity.has_gap or bool(self._queue.gaps)
        self.cluster.run(identity.end(is_commit=False))
        self._queue.gaps.clear()
        self._deliveries.forget_failure()

    @owned
    def abandon(self) -> None:
        """Aborts after an interruption at any point, such as in the middle of an answer.

        Closes all connections, including the client's shared ones, and does not wait for answers. It sends InitProducerId instead of
        EndTxn: that aborts the transaction, and fences requests that the brokers have not executed yet.
        """
        self._end_all(refused(ErrorCode.TRANSACTION_ABORTABLE, "the transaction is abandoned"))
        self._queue.gaps.clear()
        self._routes.close()
        self.cluster.close()
        self.cluster.run(self._transactional().renew())
        self._deliveries.forget_failure()

    @owned
    def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], *, member_id: str = "", generation: int = -1) -> None:
        """Commits a consumer's offsets as part of the transaction."""
        self.cluster.run(self._transactional().commit_offsets(group_id, offsets, member_id=member_id, generation=generation))

    def _transactional(self) -> ProducerIdentity:
        if self.identity is None or not self._is_transactional:
            raise refused(ErrorCode.INVALID_TXN_STATE, "this producer has no transactional id")
        return self.identity

    # Batches

    def _batch_for(self, topic: str, key: bytes | None, partition: int, size: int) -> Batch:
        is_sticky = key is None and partition < 0
        if partition < 0:
            partitions = self._topics.partitions(topic)
            partition = self._sticky.current(topic, partitions) if key is None else partitions[partition_for_key(key, len(partitions))]
        target = TopicPartition(topic, partition)
        batch = self._open.get(target)
        if batch is None or batch.size + size > self.batch_bytes:
            batch = self._begin_batch(target)
        if is_sticky:
            self._open_sticky[topic] = batch
        return batch

    def _begin_batch(self, target: TopicPartition) -> Batch:
        """Seals the open batch and returns an empty one. Raises kept failures here, before the record is accepted."""
        self._deliveries.raise_failure()
        if self.identity is not None:
            if self._is_transactional:
                self.identity.check_open()
            if self.identity.is_lost:
                self.cluster.run(self.identity.identify())
        now = time.monotonic()
        self._topics.look_for_growth(target.topic, now)
        self._topics.check(target)
        full = self._open.get(target)
        if full is not None:
            self._seal(full)
            self._step(0.0)
        self._wait_for_room()
        batch = self._open[target] = Batch(target, now)
        return batch

    def _wait_for_room(self) -> None:
        """Waits while the sealed batches exceed the buffer. Each batch has a deadline, so the wait ends."""
        while self._queue.size_bytes > BUFFER_BYTES_MAX:
            self._step(_STEP_S)

    def _seal(self, batch: Batch) -> None:
        """Closes a batch: encodes it and gives it sequence numbers and a deadline. Reports records that cannot be encoded. After an
        interruption it may be called again: the batch is open until it is in the queue."""
        with self._change:
            partition, identity = batch.partition, self.identity
            batch.size = self.batch_bytes  # no record is added after an interruption
            self._open_sticky.pop(partition.topic, None)
            if not batch.data or identity is None or not identity.has_taken(partition, batch.data):
                batch.data, refusals = self._encoding.encode(partition, batch.records, identity) if batch.records else (bytearray(), {})
                outcomes = [BatchOutcome(Batch.of(partition, record), -1, error) for record, error in refusals.values()]
                records = [record for record in batch.records if id(record) not in refusals] if refusals else batch.records
                batch.records, batch.count = records, len(records)
                self._queue.ended.extend(outcomes)
                if identity is not None:
                    identity.take_sequences(partition, batch.count)
            batch.deadline = time.monotonic() + self.delivery_timeout_s
            self._sticky.move_on(partition.topic, self._topics.known.get(partition.topic, ()))
            if not batch.count:
                del self._open[partition]
                return
            batch.number = self._queue.next_number()
            self._queue.unsettled[batch.number] = batch
            del self._open[partition]
            if self._deliveries.on_delivery is None:
                batch.records = []
            self._queue.add(batch)

    def _repair(self) -> None:
        """Repairs the queue after an interrupted change. Answers may be half read, so it closes all connections."""
        self._routes.close()
        self._queue.restore(TransportError("a call was interrupted, and the connection closed"), time.monotonic())

    # Sending and taking answers

    def _step(self, timeout_s: float) -> None:
        was_empty = self._queue.is_empty
        with self._change:
            self._send_ready()
        now = time.monotonic()
        is_done = self._queue.is_empty and not was_empty  # without acknowledgements a sent record has no answer
        ready = self._wait(0.0 if is_done else max(0.0, min(timeout_s, self._queue.wake_at(now) - now)))
        with self._change:
            self._take_answers(ready)
            if ready:
                self._send_ready()
        self._deliveries.report()

    def _send_ready(self) -> None:
        queue, routes = self._queue, self._routes
        self._renumber()
        routes.background_calls.take_in()
        while partitions := queue.sendable(time.monotonic()):
            has_sent = False
            leaders = routes.by_leader(partitions, self._without_leader, partial(self._not_sent, -1))
            for broker_id, some in (self._in_transaction(leaders) if self._is_transactional else leaders).items():
                if len(queue.in_flight.get(broker_id, ())) >= self.in_flight_max:
                    continue
                connection = routes.connection(broker_id, partial(self._not_sent, broker_id))
                if connection is not None and (batches := queue.gather(broker_id, some)):
                    self._send(broker_id, connection, batches)
                    has_sent = True
            if not has_sent:
                return

    def _in_transaction(self, leaders: Mapping[int, Sequence[TopicPartition]]) -> dict[int, list[TopicPartition]]:
        """Returns the given partitions that belong to the open transaction. A background call adds the others."""
        others = self._transactional().not_added(partition for some in leaders.values() for partition in some)
        if others:
            self._routes.background_calls.begin(_TRANSACTION, partial(self._add, others), failed=self._not_added)
        found = {broker_id: [partition for partition in some if partition not in others] for broker_id, some in leaders.items()}
        return {broker_id: some for broker_id, some in found.items() if some}

    def _add(self, partitions: Sequence[TopicPartition]) -> None:
        identity = self._transactional()
        with self.cluster.owner.lock:
            if identity.is_open:  # the transaction was not abandoned before this thread began
                self.cluster.run(identity.add_partitions(partitions))

    def _not_added(self, error: KafkaError | TransportError) -> None:
        now = time.monotonic()
        self._queue.not_sent(self._transactional().not_added(self._queue.sendable(now)), error, now)

    def _not_sent(self, broker_id: int, error: KafkaError | TransportError) -> None:
        """Pauses the partitions that a broker leads (-1: the partitions without a known leader) after an error."""
        now, leader_of = time.monotonic(), self.cluster.metadata.leader_of
        self._queue.not_sent([one for one in self._queue.sendable(now) if max(-1, leader_of(one)) == broker_id], error, now)

    def _without_leader(self, reasons: Mapping[TopicPartition, KafkaError]) -> None:
        now = time.monotonic()
        for partition in self._queue.sendable(now):
            if partition in reasons and self.cluster.metadata.leader_of(partition) < 0:
                self._queue.not_sent([partition], reasons[partition], now)

    def _renumber(self) -> None:
        """Gives the batches after a permanently failed one new sequence numbers, in another epoch."""
        for partition, batches in self._queue.to_renumber():
            assert self.identity is not None, "only an idempotent producer has sequence numbers"
            if not self.identity.begin_epoch(partition):
                self._queue.may_renumber = False
                return
            for batch in batches:
                stamp_producer(
                    batch.data, 0, len(batch.data), producer_id=self.identity.producer_id, is_transactional=False,
                    producer_epoch=self.identity.epoch_of(partition), base_sequence=self.identity.take_sequences(partition, batch.count),
                )  # fmt: skip
            self._queue.renumbered(partition)

    def _send(self, broker_id: int, connection: BlockingConnection, batches: list[Batch]) -> None:
        request = self._queue.request(batches, self.identity.transactional_id if self.identity is not None else None)
        self._queue.sending(broker_id, batches, time.monotonic())
        self.bytes_sent += sum(len(batch.data) for batch in batches)
        try:
            connection.post(request, is_answered=self.acks != 0)
        except TransportError as error:
            self._lost(broker_id, error)
            return
        if self.acks == 0 and not connection.has_unsent:
            self._queue.sent_unanswered(broker_id)

    def _wait(self, timeout_s: float) -> AbstractSet[Hashable]:
        """Waits at most `timeout_s` for an answer, a socket that accepts unsent bytes, or the end of a background call. Returns the keys of
        brokers and background calls that are ready."""
        connections = self._routes.connections
        waiting = {broker_id: connections[broker_id] for broker_id, sent in self._queue.in_flight.items() if sent}
        background_calls = self._routes.background_calls.sources()
        return first_ready({**background_calls, **waiting} if background_calls else waiting, timeout_s)

    def _take_answers(self, ready: AbstractSet[Hashable]) -> None:
        """Processes the answers that have arrived, and closes connections without an answer for the cluster's `timeout_s`."""
        now = time.monotonic()
        for broker_id in [broker_id for broker_id, sent in self._queue.in_flight.items() if sent]:
            if broker_id in ready:
                self._take_from(broker_id, self._routes.connections[broker_id])
            elif now >= self._queue.in_flight[broker_id][0].at + self.cluster.timeout_s:
                self._lost(broker_id, RequestTimeoutError(f"broker {broker_id} did not answer within {self.cluster.timeout_s:g} s"))

    def _take_from(self, broker_id: int, connection: BlockingConnection) -> None:
        try:
            if connection.has_unsent:
                connection.push()
                if self.acks == 0 and not connection.has_unsent:
                    self._queue.sent_unanswered(broker_id)
            while self._queue.in_flight.get(broker_id) and (answer := connection.take()) is not None:
                self._queue.answered(broker_id, answer, time.monotonic())
        except TransportError as error:
            self._lost(broker_id, error)

    def _lost(self, broker_id: int, error: TransportError) -> None:
        self._routes.connections.pop(broker_id).close()
        self._queue.connection_lost(broker_id, error, time.monotonic())
