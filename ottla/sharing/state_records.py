"""The records of `__share_group_state`: Kafka's ShareSnapshot (key 0) and ShareUpdate (key 1), version 0.

A snapshot contains the whole state of a share partition, an update the changes since then. A snapshot without a value is a tombstone.
`read_record` returns None for unknown records (another key, a later version, damaged bytes). Such records are skipped and are no error,
because a client could have written them.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import NamedTuple

from ottla.base.bounded_cache import remembered
from ottla.base.errors import WireError
from ottla.base.immutable import immutable
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.machine.contract import LogRecord
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.wire.messages.share_state_records import StateBatch as WireBatch
from ottla.wire.schema import maker

_INT16 = Packer(">h")
SNAPSHOT, UPDATE = 0, 1
VALUE_VERSION = 0
_VALUE_PREFIX = _INT16.pack(VALUE_VERSION)
_make_update = maker(ShareUpdateValue)
_make_batch = maker(WireBatch)
_KEYS: dict[int, type[ShareSnapshotKey] | type[ShareUpdateKey]] = {SNAPSHOT: ShareSnapshotKey, UPDATE: ShareUpdateKey}


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
    data = _VALUE_PREFIX + encoder(ShareSnapshotValue, VALUE_VERSION)(value)
    return ShareStateRecord(_write_key(SNAPSHOT, key), data, Read(key, snapshot))


def update_record(key: SharePartitionKey, update: StateUpdate) -> ShareStateRecord:
    state = update.state
    value = _make_update(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        state_batches=_to_wire(state.batches),
    )
    data = _VALUE_PREFIX + encoder(ShareUpdateValue, VALUE_VERSION)(value)
    return ShareStateRecord(_write_key(UPDATE, key), data, Read(key, update))


def tombstone(key: SharePartitionKey) -> ShareStateRecord:
    return ShareStateRecord(_write_key(SNAPSHOT, key), None, Read(key, None))


def read_record(record: LogRecord) -> Read | None:
    if type(record) is ShareStateRecord:
        return record.read
    try:
        found = _read_key(record.key)
        if found is None:
            return None
        kind, key = found
        if record.value is None:
            return Read(key, None) if kind == SNAPSHOT else None
        what = _read_value(kind, record.value)
    except WireError:
        return None
    return Read(key, what) if what is not None else None


@remembered(1 << 20)
def _write_key(kind: int, key: SharePartitionKey) -> bytes:
    key_type = _KEYS[kind]
    return _INT16.pack(kind) + encoder(key_type, 0)(key_type(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))


def _read_key(data: bytes) -> tuple[int, SharePartitionKey] | None:
    kind = _INT16.unpack_from(data)[0] if len(data) >= 2 else -1
    key_type = _KEYS.get(kind)
    if key_type is None:
        return None
    key, end = decoder(key_type, 0)(data, 2)
    return (kind, SharePartitionKey(key.group_id, bytes(key.topic_id), key.partition)) if end == len(data) else None


def _read_value(kind: int, data: bytes) -> Snapshot | StateUpdate | None:
    if data[:2] != _VALUE_PREFIX:
        return None
    if kind == UPDATE:
        update, _ = decoder(ShareUpdateValue, VALUE_VERSION)(data, 2)
        state = ShareState(0, update.leader_epoch, update.start_offset, update.delivery_complete_count, _from_wire(update.state_batches))
        return StateUpdate(update.snapshot_epoch, state)
    value, _ = decoder(ShareSnapshotValue, VALUE_VERSION)(data, 2)
    state = ShareState(
        value.state_epoch, value.leader_epoch, value.start_offset, value.delivery_complete_count, _from_wire(value.state_batches)
    )
    return Snapshot(value.snapshot_epoch, state, value.create_timestamp, value.write_timestamp)


def _to_wire(batches: tuple[StateBatch, ...]) -> list[WireBatch]:
    return [
        _make_batch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _from_wire(batches: list[WireBatch]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) for batch in batches)
