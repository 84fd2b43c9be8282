"""Commits the output of a batch from the driver, exactly once: one transaction with the records and the group's source offsets.

For each batch it does these steps in this order: it sends InitProducerId, which ends an open transaction of an earlier driver and fences
that driver; reads the group's committed offsets; compares them with the batch's range (`decision.py`); appends the record batches of all
tasks, stamped with producer id, epoch and sequence numbers; sends the new offsets with metadata; sends EndTxn. Tasks append nothing, so
their retries and stragglers do not matter. Correctness depends on the protocol, not on this process: it may be killed at any point and
another may continue, or both may run concurrently.

- The transactional id is derived from the group, so a second copy of the pipeline is fenced. A fenced driver stops; two drivers that both
  continued would fence each other forever.
- Every batch gets its own epoch, so late requests of an earlier batch are refused, with either transaction protocol of the broker. A
  process that holds a producer id and epoch passes them to InitProducerId (KIP-360), which refuses them if another process has taken over.
- A process without an identity reads the committed offsets before it takes over. If they show that this process is a stale copy of the
  pipeline, or that the batch is already committed, it does not fence the active driver. Otherwise the offsets are read again after
  InitProducerId, and these decide.
- After a lost answer or an unreachable broker a batch starts again with InitProducerId, and the committed offsets decide. A batch job has
  no offsets, so it repeats EndTxn instead.
- A transaction is aborted by InitProducerId, never by EndTxn, because the epoch must be raised.
- The transaction is open only while output is sent. Output that tasks have staged on the brokers (`staging.py`) is attached instead of
  sent.
- The transaction's timeout grows with the batch, so that a slow connection or a quota does not abort it at every restart.

Without staged output it needs only Apache Kafka's requests. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import ottla.client
from ottla.client import (
    Client,
    ClientError,
    Committed,
    ErrorCode,
    FencedError,
    KafkaError,
    OutcomeUnknownError,
    Transaction,
    TransportError,
)
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.decision import BatchRange, PlannedBatch, decide
from ottla.spark.errors import BrokerError, FencedDriverError, OffsetConflictError, OptionError, SpoolError
from ottla.spark.option_tables import DELIVERY_TIMEOUT_MS, REQUEST_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS
from ottla.spark.output_digest import OutputDigest
from ottla.spark.sending import SentSlice, read_ahead
from ottla.spark.spool import TaskOutput, output_bytes_max, too_large
from ottla.spark.staging import Attachment, attach, steps

PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 2.0
RELAYS_MAX = 8
CLIENT_ID = "ottla-spark"

STABLE_S = 1.0
"""Seconds to wait for a transaction that is committing the group's offsets. Most are open for milliseconds."""

SENT_BYTES_PER_S_MIN = 512 * 1024
"""Assumed lowest sending rate in bytes per second. The transaction's timeout is computed with this rate, up to `TIMEOUT_MS_MAX`.

At 512 KiB per second a batch of 256 MiB gets 8.5 minutes. 15 minutes is the default of the broker's `transaction.max.timeout.ms`.
"""
TIMEOUT_MS_MAX = 15 * 60 * 1000

STREAM_ID_PREFIX = "eos/"
BATCH_ID_PREFIX = "batch/"

_ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""Errors after which a new transaction with a higher epoch may succeed."""


class Target(NamedTuple):
    """The cluster for the output, and the limits.

    `config` has the security settings of `ottla.client.connect`. `group` is the consumer group whose committed offsets decide; a batch
    write needs none. `request_timeout_s` is for one request and its repetitions, `retry_s` for a batch while brokers are unreachable.
    `transaction_timeout_ms` is the minimum of the transaction timeout; a large batch gets more (the broker's limit is
    `transaction.max.timeout.ms`). `output_bytes_max` replaces the limits of `spool.py`. With `trusts_checkpoint` missing offsets of the
    group are not a conflict.
    """

    bootstrap: str
    config: tuple[tuple[str, str], ...] = ()
    group: str | None = None
    request_timeout_s: float = REQUEST_TIMEOUT_MS / 1000
    retry_s: float = DELIVERY_TIMEOUT_MS / 1000
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    output_bytes_max: int | None = None
    trusts_checkpoint: bool = False


class CommitOutcome(NamedTuple):
    """The result of a batch. `is_committed_now` is False if it had been committed before and nothing was sent.

    `open_s` is how long the transaction was open, in seconds, `tries` the number of attempts.
    """

    is_committed_now: bool
    rows: int
    bytes: int
    producer_id: int = -1
    epoch: int = -1
    open_s: float = 0.0
    tries: int = 1


def commit_batch(
    target: Target, outputs: Sequence[TaskOutput], *, batch_id: int, query_id: str, batch_range: BatchRange, may_use_v2: bool = True,
    run: str = "",
) -> CommitOutcome:
    """Commits a batch of a streaming query together with the group's offsets, unless it is already committed.

    `outputs` are the commit messages of the successful tasks, in task order. After any crash or error call it again for the same batch,
    with the same range. If `may_use_v2` is False, it uses version 1 of the transaction protocol. `run` is stored as in `CommitMetadata`.

    Raises `OffsetConflictError` if the group's offsets are neither start nor end of the batch, or the group has live members; `OutputError`
    for too much output (nothing was sent); `SpoolError` if a task's output is missing or damaged; `FencedDriverError` if another driver
    took over or the transaction timed out; `BrokerError` if the cluster refused a request permanently or was unreachable for `retry_s`;
    `OptionError` for invalid security settings.
    """
    assert target.group, "a streaming query needs a group"
    with _relay(target, may_use_v2) as relay:
        return relay.commit(outputs, batch_id=batch_id, query_id=query_id, batch_range=batch_range, run=run)


def write_batch(target: Target, outputs: Sequence[TaskOutput], *, may_use_v2: bool = True) -> CommitOutcome:
    """Writes the output of a batch job in one transaction with its own transactional id. Raises the errors of `commit_batch`."""
    relay = Relay(target, transactional_id=f"{BATCH_ID_PREFIX}{uuid.uuid4()}", may_use_v2=may_use_v2)
    try:
        return relay.write(outputs)
    finally:
        relay.close()


class _Identity(NamedTuple):
    """A producer identity that this process holds, and the last batch that used it."""

    producer_id: int
    epoch: int
    query_id: str
    batch_id: int


class _Sending(NamedTuple):
    """An open transaction: its start, its timeout at the coordinator, and the size of its output in bytes."""

    opened: float
    timeout_ms: int
    size_bytes: int


class Relay:
    """The transactions of one group, or of one batch job, in this process. A relay keeps its client and producer identity between batches
    as an optimization."""

    def __init__(
        self,
        target: Target,
        *,
        transactional_id: str | None = None,
        may_use_v2: bool = True,
        connect: Callable[..., Client] = ottla.client.connect,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.target = target
        self.transactional_id = transactional_id or f"{STREAM_ID_PREFIX}{target.group}"
        self._may_use_v2 = may_use_v2
        self._connect = connect
        self._now = now
        self._pause = pause
        self._client: Client | None = None
        self._identity: _Identity | None = None
        self._sending: _Sending | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Relay:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def close_if_idle(self) -> bool:
        """Closes the connection unless a thread uses this relay. Returns whether it did."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.close()
        finally:
            self._lock.release()
        return True

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # A batch of a stream

    def commit(
        self, outputs: Sequence[TaskOutput], *, batch_id: int, query_id: str, batch_range: BatchRange, run: str = ""
    ) -> CommitOutcome:
        self._check_size(outputs)
        group = self.target.group or ""
        rows = sum(output.rows for output in outputs)
        batch = PlannedBatch(group, query_id, batch_id, batch_range, rows > 0, self.target.trusts_checkpoint, run=run)
        held = self._identity
        if held is not None and (held.query_id, held.batch_id + 1) != (query_id, batch_id):
            self._identity = None  # from an earlier run; another driver may have been active since
        name = f"batch {batch_id} of group {group!r}"
        return self._repeat(lambda: self._try(batch, outputs), name)

    def _try(self, batch: PlannedBatch, outputs: Sequence[TaskOutput]) -> CommitOutcome:
        client = self._open_client(batch.group)
        if self._identity is None and self._is_known_committed(client, batch, outputs):
            return CommitOutcome(False, 0, 0)
        transaction = self._initialize(client, batch, outputs)
        batch, is_done = self._compare(client, batch, outputs)
        if is_done:
            self._keep(transaction, batch)
            return CommitOutcome(False, 0, 0, transaction.producer_id, transaction.epoch)
        sent = self._send(transaction, outputs, lambda digest: self._commit_offsets(transaction, batch, digest))
        self._keep(transaction, batch)
        return sent

    def _is_known_committed(self, client: Client, batch: PlannedBatch, outputs: Sequence[TaskOutput]) -> bool:
        """Returns whether the batch is certainly committed, without fencing another driver. Raises `OffsetConflictError` for the batch of a
        stale copy.

        If a transaction with offsets of the group is still open, it returns False: InitProducerId ends that transaction, then `_try` reads
        the offsets again.
        """
        try:
            return self._compare(client, batch, outputs, timeout_s=STABLE_S)[1]
        except KafkaError as error:
            if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            return False

    def _compare(
        self, client: Client, batch: PlannedBatch, outputs: Sequence[TaskOutput], *, timeout_s: float | None = None
    ) -> tuple[PlannedBatch, bool]:
        """Returns the batch with what the group's offsets add to it (`decide`), and whether they show it as committed. A query without
        source offsets counts its batches as offsets of one partition; this partition is added to the returned batch.
        """
        partitions = None if batch.range.is_counted and not batch.range.end else batch.range.end
        committed = client.committed(batch.group, partitions, require_stable=True, timeout_s=timeout_s)
        return decide(batch, committed, {partition for output in outputs for partition in output.targets})

    def _commit_offsets(self, transaction: Transaction, batch: PlannedBatch, digest: OutputDigest) -> None:
        start, end, topic_ids, (_, apart), _ = batch.range
        text = digest.text()
        offsets = {}
        for partition, offset in end.items():
            first = offset if start is None else start.get(partition, -1)
            topic_id = topic_ids.get(partition.topic, "")
            metadata = CommitMetadata(
                batch.query_id, batch.batch_id, first, digest.rows, text, topic_id, apart, batch.run, batch.restarts
            )
            offsets[partition] = Committed(offset, metadata=metadata.to_text())
        transaction.commit_offsets(batch.group, offsets)

    def _initialize(self, client: Client, batch: PlannedBatch, outputs: Sequence[TaskOutput]) -> Transaction:
        """Takes over the transactional id, with the identity that this process holds, if any. Halves the transaction's timeout while it is
        above the broker's maximum, but not below the option's value."""
        held = self._identity or _Identity(-1, -1, "", 0)
        self._sending = None
        least_ms, size = self.target.transaction_timeout_ms, sum(output.size_bytes for output in outputs)
        timeout_ms = max(least_ms, min(TIMEOUT_MS_MAX, size * 1000 // SENT_BYTES_PER_S_MIN))
        while True:
            transaction = client.transaction(self.transactional_id, timeout_ms=timeout_ms, may_use_v2=self._may_use_v2)
            try:
                transaction.initialize(held.producer_id, held.epoch)
            except KafkaError as error:
                if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms == least_ms:
                    raise
                timeout_ms = max(least_ms, timeout_ms // 2)  # the broker's transaction.max.timeout.ms is lower
                continue
            self._keep(transaction, batch)
            self._sending = _Sending(self._now(), timeout_ms, size)
            return transaction

    def _keep(self, transaction: Transaction, batch: PlannedBatch) -> None:
        self._identity = _Identity(transaction.producer_id, transaction.epoch, batch.query_id, batch.batch_id)

    # A batch job

    def write(self, outputs: Sequence[TaskOutput]) -> CommitOutcome:
        self._check_size(outputs)
        if not any(output.rows for output in outputs):
            return CommitOutcome(True, 0, 0)
        return self._repeat(lambda: self._try_write(outputs), f"the output under {self.transactional_id!r}")

    def _try_write(self, outputs: Sequence[TaskOutput]) -> CommitOutcome:
        transaction = self._initialize(self._open_client(None), PlannedBatch("", "", 0, BatchRange({}, {})), outputs)
        return self._send(transaction, outputs, lambda _: None, is_end_repeated=True)

    # Both

    def _send(
        self,
        transaction: Transaction,
        outputs: Sequence[TaskOutput],
        commit_offsets: Callable[[OutputDigest], None],
        *,
        is_end_repeated: bool = False,
    ) -> CommitOutcome:
        digest = OutputDigest()
        identity = transaction.producer_id, transaction.epoch  # the end of a transaction may raise the epoch
        size = sum(output.size_bytes for output in outputs)
        with read_ahead(steps(outputs), size) as pieces:
            opened = self._now()
            if self._sending is not None:
                self._sending = self._sending._replace(opened=opened)
            transaction.begin()
            transaction.add_partitions(sorted({partition for output in outputs for partition in output.targets}))
            self._produce(transaction, pieces, digest)
        commit_offsets(digest)
        self._end(transaction, is_end_repeated)
        return CommitOutcome(True, digest.rows, size, *identity, self._now() - opened)

    def _produce(self, transaction: Transaction, pieces: Iterable[SentSlice | Attachment], digest: OutputDigest) -> None:
        for piece in pieces:
            if isinstance(piece, Attachment):
                piece.add_to(digest)
                attach(transaction, piece)
                continue
            for partition, batches in piece.items():
                for batch in batches:
                    digest.add(partition, batch)
            transaction.produce(piece)

    def _end(self, transaction: Transaction, is_repeated: bool) -> None:
        """Commits the transaction. With `is_repeated` it repeats the commit after a lost answer or a retriable error, because no offsets
        show the outcome. After `retry_s` the outcome is unknown, since any attempt may have committed the transaction.
        """
        deadline, pause_s = self._now() + self.target.retry_s, PAUSE_S_MIN
        while True:
            try:
                transaction.commit()
                return
            except (OutcomeUnknownError, TransportError, KafkaError) as error:
                if not is_repeated or (isinstance(error, KafkaError) and not error.is_retriable):
                    raise
                if self._now() > deadline:
                    raise BrokerError(f"it is not known whether the output was committed: {error}") from error
            self._pause(pause_s)
            pause_s = min(PAUSE_S_MAX, pause_s * 2)

    def _repeat(self, attempt: Callable[[], CommitOutcome], name: str) -> CommitOutcome:
        """Repeats the batch after retriable failures, for up to `retry_s`. Raises `FencedDriverError` after fencing, `BrokerError` after
        any other failure of a request. After a `SpoolError` it ends the open transaction."""
        deadline = self._now() + self.target.retry_s
        pause_s, tries = PAUSE_S_MIN, 1
        while True:
            try:
                return attempt()._replace(tries=tries)
            except FencedError as error:
                self._forget()
                raise FencedDriverError(self._fenced(name, error)) from error
            except (ClientError, OSError) as error:
                self.close()
                if not _may_pass(error) or self._now() + pause_s > deadline:
                    self._forget()
                    raise BrokerError(f"{name} was not committed: {error}") from error
            except SpoolError:
                self._abort()
                raise
            self._pause(pause_s)
            pause_s, tries = min(PAUSE_S_MAX, pause_s * 2), tries + 1

    def _abort(self) -> None:
        """Tries to end the open transaction, because it blocks read_committed readers and the query may restart much later. If this fails,
        the coordinator aborts the transaction after its timeout.
        """
        client, held = self._client, self._identity
        if client is not None and held is not None:
            try:
                client.transaction(self.transactional_id, may_use_v2=self._may_use_v2).initialize(held.producer_id, held.epoch)
            except ClientError:
                pass
        self._forget()

    def _forget(self) -> None:
        self.close()
        self._identity = None

    def _check_size(self, outputs: Sequence[TaskOutput]) -> None:
        size, bound = sum(output.size_bytes for output in outputs), self.target.output_bytes_max
        if bound is None:
            in_messages, bound = sum(output.message_bytes for output in outputs), output_bytes_max(False)
            size, bound = (in_messages, bound) if in_messages > bound else (size, output_bytes_max(True))
        if size > bound:
            raise too_large(size, bound)

    def _open_client(self, group: str | None) -> Client:
        """Returns the existing connection or opens one. When it opens one, it refuses a group with live members, because the members commit
        offsets too.
        """
        if self._client is not None:
            return self._client
        target = self.target
        try:
            client = self._connect(
                target.bootstrap, dict(target.config), client_id=CLIENT_ID, timeout_s=target.request_timeout_s, with_extensions=True
            )
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers, kafka.security.protocol, kafka.sasl.*, kafka.ssl.*: {error}") from None
        try:
            if group is not None:
                refuse_live_members(client, group)
        except BaseException:
            client.close()
            raise
        self._client = client
        return client

    def _fenced(self, name: str, error: FencedError) -> str:
        rest = "Nothing is lost; a restart continues from the group's offsets"
        sending = self._sending
        open_ms = 0 if sending is None else int(1000 * (self._now() - sending.opened))
        if sending is not None and open_ms >= sending.timeout_ms:
            return (
                f"{name} was not committed: its transaction ran out of time ({error.name}): it was open for {open_ms} ms, of "
                f"{sending.timeout_ms} ms, with {sending.size_bytes} bytes to send. Sending is too slow for a batch of this size: raise "
                f"kafka.transaction.timeout.ms, which the broker's transaction.max.timeout.ms bounds, or the user's quota. {rest}"
            )
        return (
            f"{name} was not committed by this driver: another driver took over the transactional id {self.transactional_id!r} "
            f"({error.name}). Does a second copy of the pipeline run? {rest}"
        )


def refuse_live_members(client: Client, group: str) -> None:
    """Raises `OffsetConflictError` if the group has live members, because they commit offsets too."""
    members = client.describe_group(group).members
    if members:
        hosts = ", ".join(sorted({member.host for member in members})[:3])
        raise OffsetConflictError(
            f"group: {group!r} has live members ({len(members)}, on {hosts}), which commit offsets too; stop them, or use "
            "another group for the query"
        )


def _may_pass(error: Exception) -> bool:
    if isinstance(error, KafkaError):
        return error.is_retriable or error.code in _ABORTABLE
    return isinstance(error, TransportError | OutcomeUnknownError)


# Keeping relays between batches


_relays: OrderedDict[tuple[int, Target, bool], Relay] = OrderedDict()
_relays_lock = threading.Lock()


def _relay(target: Target, may_use_v2: bool) -> Relay:
    """Returns this process's relay for a target. A forked child has copies of the parent's relays and must not use their connections."""
    key = (os.getpid(), target, may_use_v2)
    with _relays_lock:
        found = _relays.pop(key, None) or Relay(target, may_use_v2=may_use_v2)
        _relays[key] = found
        for other_key, other in list(_relays.items()):
            if len(_relays) > RELAYS_MAX and other is not found and other.close_if_idle():
                del _relays[other_key]
    return found
