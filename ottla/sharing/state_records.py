"""The records of `__share_group_state`: Kafka's ShareSnapshot (key 0) and ShareUpdate (key 1), version 0.

A snapshot contains the whole state of a share partition, an update the changes since then. A snapshot without a value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.base.bounded_cache import remembered
from ottla.base.immutable import immutable
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.machine.contract import LogRecord
from ottla.machine.record_format import RecordFormat, write_key, write_value
from ottla.wire.messages import share_state_records
from ottla.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.wire.messages.share_state_records import StateBatch as WireBatch
from ottla.wire.schema import RecordKey, maker

VALUE_VERSION = 0
_FORMAT = RecordFormat(share_state_records)
_make_update = maker(ShareUpdateValue)
_make_batch = maker(WireBatch)


class Snapshot(NamedTuple):
    """The whole state of a share partition. `snapshot_epoch` counts its snapshots. A repeated snapshot has a `written_ms` later than its
    `created_ms`.
    """

    snapshot_epoch: int
    state: ShareState
    created_ms: int
    written_ms: int


class StateUpdate(NamedTuple):
    """A change; `state.batches` has only the changed batches, and `state.state_epoch` is not part of it."""

    snapshot_epoch: int
    state: ShareState


class Read(NamedTuple):
    """A decoded record; `what` is None for a tombstone."""

    key: SharePartitionKey
    what: Snapshot | StateUpdate | None


@immutable
class ShareStateRecord(LogRecord):
    """An encoded record with its decoded value, so that the leader that wrote it need not decode it again."""

    read: Read


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot) -> ShareStateRecord:
    state = snapshot.state
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=snapshot.created_ms,
        write_timestamp=snapshot.written_ms,
        state_batches=_to_wire(state.batches),
    )
    return ShareStateRecord(_write_key(ShareSnapshotKey, key), write_value(value, VALUE_VERSION), Read(key, snapshot))


def update_record(key: SharePartitionKey, update: StateUpdate) -> ShareStateRecord:
    state = update.state
    value = _make_update(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=_to_wire(state.batches),
    )
    return ShareStateRecord(_write_key(ShareUpdateKey, key), write_value(value, VALUE_VERSION), Read(key, update))


def tombstone(key: SharePartitionKey) -> ShareStateRecord:
    return ShareStateRecord(_write_key(ShareSnapshotKey, key), None, Read(key, None))


def read_record(record: LogRecord) -> Read | None:
    """Returns None for an unknown or damaged record (`machine/record_format.py`)."""
    if type(record) is ShareStateRecord:
        return record.read
    found: Any = _FORMAT.read_key(record.key)
    if found is None:
        return None
    key = SharePartitionKey(found.group_id, bytes(found.topic_id), found.partition)
    if record.value is None:
        return Read(key, None) if type(found) is ShareSnapshotKey else None
    value = _FORMAT.read_value(found, record.value)
    return Read(key, _to_domain(value)) if value is not None else None


@remembered(1 << 20)
def _write_key(key_type: Callable[..., RecordKey], key: SharePartitionKey) -> bytes:
    return write_key(key_type(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))


def _to_domain(value: Any) -> Snapshot | StateUpdate:
    state_epoch = 0 if type(value) is ShareUpdateValue else value.state_epoch
    batches = _from_wire(value.state_batches)
    state = ShareState(state_epoch, value.leader_epoch, value.start_offset, value.delivery_complete_count, batches)
    if type(value) is ShareUpdateValue:
        return StateUpdate(value.snapshot_epoch, state)
    return Snapshot(value.snapshot_epoch, state, value.create_timestamp, value.write_timestamp)


def _to_wire(batches: tuple[StateBatch, ...]) -> list[WireBatch]:
    return [
        _make_batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _from_wire(batches: list[WireBatch]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches)
