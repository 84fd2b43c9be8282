"""The state of one transactional id, and the changes of this state.

`TransactionMetadata` is the immutable content of a record of `__transaction_state`. Each change makes a new value and asserts that
`ALLOWED` has the transition. A new value takes effect only after it was logged and applied.

Identities. `identity` is the client's current (producer id, epoch); with EPOCH_MAX the client must call InitProducerId first. In Prepare*
and for a kept prepared transaction (KIP-939) `identity` may have a higher epoch than the transaction, or a new producer id if the epochs
are used up. `last_identity` is the client's previous identity, if the client may continue from it after a lost answer or a timeout.
`last_identity` is computed from the logged `previous_producer_id`, so the next coordinator knows it too (KAFKA-20357).

Invariants: clients use epochs 0 to EPOCH_MAX - 1; only markers have EPOCH_MAX.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.transactions.states import (
    ALLOWED,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

EPOCH_MAX = 0x7FFF
LAST_USABLE_EPOCH = EPOCH_MAX - 1
TRANSACTIONS_V2 = 2
NO_TIMEOUT_MS = 0x7FFFFFFF
"""The value of `timeout_ms` for no timeout: an external coordinator ends the transactions (KIP-939)."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= LAST_USABLE_EPOCH


NO_IDENTITY = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Marker(NamedTuple):
    """The content of a marker, which is the same in all partitions of a transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


class TransactionMetadata(NamedTuple):
    """The logged state of one transactional id. Times are wall times in milliseconds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp_ms: int = NO_TIMESTAMP
    update_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_transaction_version: int = 0

    @property
    def identity(self) -> ProducerIdAndEpoch:
        if self.next_producer_id == NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def last_identity(self) -> ProducerIdAndEpoch:
        """The identity that the same client used before; `NO_IDENTITY` if no client may continue from it."""
        if self.previous_producer_id == NO_PRODUCER_ID:
            return NO_IDENTITY
        identity = self.identity
        if self.previous_producer_id != identity.producer_id:
            return ProducerIdAndEpoch(self.previous_producer_id, LAST_USABLE_EPOCH)
        return ProducerIdAndEpoch(identity.producer_id, identity.epoch - 1) if identity.epoch > 0 else NO_IDENTITY

    @property
    def is_kept(self) -> bool:
        """Whether the transaction is ongoing and its owner got a new identity for ending it (KIP-939)."""
        return self.state is ONGOING and self.next_producer_id != NO_PRODUCER_ID

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is ONGOING and self.timeout_ms != NO_TIMEOUT_MS and self.start_timestamp_ms + self.timeout_ms < now_ms


def move(metadata: TransactionMetadata, state: TransactionState, **changes: object) -> TransactionMetadata:
    """Returns the value with another state. All transitions are made here."""
    assert state in ALLOWED[metadata.state], f"{metadata.transactional_id}: {metadata.state.value} -> {state.value}"
    return metadata._replace(state=state, **changes)  # type: ignore[arg-type]


def initialised(
    metadata: TransactionMetadata, identity: ProducerIdAndEpoch, previous_producer_id: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Sets the client's identity; no transaction is open."""
    return move(
        metadata,
        EMPTY,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_timestamp_ms=NO_TIMESTAMP,
        update_timestamp_ms=now_ms,
    )


def with_partitions(metadata: TransactionMetadata, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> TransactionMetadata:
    """Adds partitions. The first ones open the transaction and start its timeout."""
    assert not metadata.is_kept, f"{metadata.transactional_id}: a prepared transaction does not grow"
    return move(
        metadata,
        ONGOING,
        partitions=metadata.partitions | partitions,
        start_timestamp_ms=metadata.start_timestamp_ms if metadata.state is ONGOING else now_ms,
        update_timestamp_ms=now_ms,
        client_transaction_version=version,
    )


def prepared(metadata: TransactionMetadata, is_commit: bool, version: int, now_ms: int) -> TransactionMetadata:
    """Prepares the end for a client of transactions v1. The client keeps its epoch."""
    identity = metadata.identity
    # A kept transaction has a new identity. Its markers have the next epoch, which fences a process with the old epoch.
    marker_epoch = min(metadata.producer_epoch + 1, EPOCH_MAX) if metadata.is_kept else metadata.producer_epoch
    return _prepared(metadata, is_commit, identity, marker_epoch, metadata.previous_producer_id, version, now_ms)


def prepared_with_bump(
    metadata: TransactionMetadata, is_commit: bool, now_ms: int, *, new_producer_id: int = NO_PRODUCER_ID, is_remembered: bool = True
) -> TransactionMetadata:
    """Prepares an end that increments the epoch (KIP-890): the markers have the next epoch, which fences the current one.

    When the epochs are used up, the client continues with `new_producer_id`; if there is none, the next InitProducerId must choose one.
    With `is_remembered` the client may continue from the old epoch (after a lost answer or a timeout). Otherwise the old epoch is fenced
    permanently.
    """
    identity = metadata.identity
    if identity.is_exhausted and new_producer_id != NO_PRODUCER_ID:
        following = ProducerIdAndEpoch(new_producer_id, 0)
    else:
        following = ProducerIdAndEpoch(identity.producer_id, min(identity.epoch + 1, EPOCH_MAX))
    previous_producer_id = identity.producer_id if is_remembered else NO_PRODUCER_ID
    marker_epoch = min(metadata.producer_epoch + 1, EPOCH_MAX)
    return _prepared(metadata, is_commit, following, marker_epoch, previous_producer_id, TRANSACTIONS_V2, now_ms)


def _prepared(
    metadata: TransactionMetadata,
    is_commit: bool,
    following: ProducerIdAndEpoch,
    marker_epoch: int,
    previous_producer_id: int,
    version: int,
    now_ms: int,
) -> TransactionMetadata:
    is_plain = following == (metadata.producer_id, marker_epoch)
    return move(
        metadata,
        PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        producer_epoch=marker_epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=NO_PRODUCER_ID if is_plain else following.producer_id,
        next_producer_epoch=NO_PRODUCER_EPOCH if is_plain or following.epoch == 0 else following.epoch,
        start_timestamp_ms=metadata.start_timestamp_ms if metadata.state is ONGOING else now_ms,
        update_timestamp_ms=now_ms,
        client_transaction_version=version,
    )


def completed(metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Completes the transaction, when every partition has its marker; the client's next identity becomes the current one."""
    identity = metadata.identity
    return move(
        metadata,
        COMPLETE_COMMIT if metadata.state is PREPARE_COMMIT else COMPLETE_ABORT,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        partitions=frozenset(),
        update_timestamp_ms=now_ms,
    )


def kept(metadata: TransactionMetadata, identity: ProducerIdAndEpoch, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Keeps the transaction open for its owner to end it with `identity` (KIP-939). A transaction without a timeout stays without one."""
    return move(
        metadata,
        ONGOING,
        next_producer_id=identity.producer_id,
        next_producer_epoch=identity.epoch,
        timeout_ms=NO_TIMEOUT_MS if metadata.timeout_ms == NO_TIMEOUT_MS else timeout_ms,
        update_timestamp_ms=now_ms,
    )
