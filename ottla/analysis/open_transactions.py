"""Open transactions of partitions, and the transactions that block readers of committed records.

Such a reader stops at the last stable offset, the first offset of the oldest open transaction of the partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.analysis.moments import format_ms, now_ms
from ottla.base.errors import ApiError
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import transaction_admin
from ottla.client.core.admin import LATEST, OffsetAt, list_offsets
from ottla.client.core.transaction_admin import TransactionDescription


class OpenTransaction(NamedTuple):
    """An open transaction of a partition. Transactional id, state and coordinator are None if no coordinator knows the producer id."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None = None
    state: str | None = None
    coordinator: int | None = None
    idle_ms: int = 0

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class BlockingTransaction(NamedTuple):
    """A transaction that blocks readers, and the command that ends it. Readers stop at the transaction with `is_first`; later ones block
    them after it has ended."""

    topic: str
    partition: int
    last_stable_offset: int
    records_behind: int
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    coordinator_epoch: int
    last_sequence: int
    state: str | None
    coordinator: int | None
    idle_ms: int
    log_end_offset: int
    is_first: bool
    end_it: str
    client_host: str | None = None
    client_id: str | None = None
    age_ms: int | None = None
    times_out_in_ms: int | None = None
    partitions: tuple[str, ...] = ()
    is_two_phase: bool = False


def open_transactions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    """Returns the open transactions of these partitions with their transactional ids, oldest first in each partition."""
    found = []
    for partition, producers in sorted(transaction_admin.describe_producers(cluster, partitions).items()):
        if isinstance(producers, ApiError):
            raise producers
        for state in sorted(producers, key=lambda state: state.current_txn_start_offset):
            if state.current_txn_start_offset >= 0:
                numbers = (state.producer_id, state.producer_epoch, state.coordinator_epoch, state.last_sequence)
                found.append(OpenTransaction(*partition, *numbers, state.current_txn_start_offset, state.last_timestamp))
    owners = transaction_admin.owners_of(cluster, [one.producer_id for one in found])
    now = now_ms()
    return [
        one._replace(
            transactional_id=owner.transactional_id if owner else None,
            state=owner.state if owner else None,
            coordinator=owner.coordinator if owner else None,
            idle_ms=max(0, now - one.last_timestamp),
        )
        for one in found
        for owner in (owners.get(one.producer_id),)
    ]


def is_hanging(one: OpenTransaction, partitions_of: Mapping[str, frozenset[TopicPartition]], limit_ms: int) -> bool:
    """Returns whether a transaction is idle for more than `limit_ms` and will not be ended by a coordinator. `partitions_of` has the
    partitions of each transactional id's current transaction, as its coordinator knows them."""
    if one.idle_ms <= limit_ms:
        return False
    return one.transactional_id is None or one.place not in partitions_of.get(one.transactional_id, frozenset())


def blocked_partitions(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Returns last stable offset and end offset of each partition whose last stable offset is before the end."""
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    stables = list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    held = {}
    for partition in partitions:
        end, stable = ends[partition], stables[partition]
        if isinstance(end, OffsetAt) and isinstance(stable, OffsetAt) and stable.offset < end.offset:
            held[partition] = (stable.offset, end.offset)
    return held


def blocking_transactions(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[BlockingTransaction]]:
    """Returns `blocked_partitions`, and the transactions that block their readers."""
    held = blocked_partitions(cluster, partitions)
    found = open_transactions(cluster, sorted(held)) if held else []
    names = sorted({one.transactional_id for one in found if one.transactional_id is not None})
    described = {name: transaction_admin.describe_transaction(cluster, name) for name in names}
    return held, [_blocking(one, *held[one.place], described.get(one.transactional_id or "")) for one in found]


def _blocking(one: OpenTransaction, stable: int, end: int, found: TransactionDescription | None) -> BlockingTransaction:
    """Adds the coordinator's description. If the current transaction of the transactional id does not have this partition, `one` is an
    older transaction, and is ended by partition and offset."""
    is_owner = found is not None and one.place in found.partitions
    made = BlockingTransaction(
        **one._asdict(),
        last_stable_offset=stable,
        log_end_offset=end,
        records_behind=end - stable,
        is_first=one.start_offset == stable,
        end_it=_how_to_end(one, found if is_owner else None),
    )
    if found is None:
        return made
    made = made._replace(is_two_phase=found.is_two_phase, client_id=found.client_id or None, client_host=found.client_host or None)
    if not is_owner:
        return made
    age_ms = max(0, now_ms() - found.start_ms) if found.start_ms >= 0 else None
    left_ms = None if age_ms is None or found.is_two_phase else max(0, found.timeout_ms - age_ms)
    return made._replace(partitions=tuple(map(str, found.partitions)), age_ms=age_ms, times_out_in_ms=left_ms)


def _how_to_end(one: OpenTransaction, owner: TransactionDescription | None) -> str:
    if owner is None:
        return f"ottla txn abort --topic {one.topic} --partition {one.partition} --start-offset {one.start_offset}"
    if owner.is_two_phase:
        return f"ottla txn finish {one.transactional_id} --commit, or --abort"
    return f"ottla txn abort --transactional-id {one.transactional_id}"


def sentence(one: BlockingTransaction) -> str:
    """Describes a transaction that blocks readers, and how to end it, in one line."""
    name = one.transactional_id
    who = f"transaction {name!r}" if name is not None else "a transaction that no coordinator knows"
    details = [f"producer {one.producer_id} epoch {one.producer_epoch}"]
    if one.client_host:
        details.append(f"client {one.client_id or 'without a name'} at {one.client_host}")
    if one.age_ms is not None:
        details.append(f"open for {one.age_ms / 1000:.1f} s")
    details.append(f"began at offset {one.start_offset}")
    details.append(f"last wrote {format_ms(one.last_timestamp)}")
    if one.partitions:
        details.append(f"holds {', '.join(one.partitions)}")
    if one.times_out_in_ms is not None:
        details.append(f"times out in {one.times_out_in_ms / 1000:.0f} s")
    position = f"readers stop at {one.last_stable_offset}, {one.records_behind} behind the end, because of"
    start = position if one.is_first else "after that"
    return f"{one.topic}-{one.partition}: {start} {who} ({'; '.join(details)}). End it: {one.end_it}"
