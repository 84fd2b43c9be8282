"""The state of one share coordinator (a partition of `__share_group_state`): the stored state of each share partition.

All of it is hard state: a function of the log from the oldest needed snapshot on, written by `apply` alone. The epochs of a known share
partition only rise. As in Kafka, a record with lower epochs does not lower them (Kafka logs leader epoch 0 when it initializes a state
again).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.bounded_cache import BoundedCache
from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.machine.contract import LogRecord
from ottla.machine.memory import ExactShare
from ottla.sharing.batches import merge
from ottla.sharing.state_records import Snapshot, StateUpdate, read_record
from ottla.sharing.state_room import RESERVED_BATCHES

ENDED_BYTES_MAX = 1 << 20
"""Memory for the keys of deleted states, in bytes. A key is needed only briefly, until the leader of the deleted state stops writing."""


STATE_BYTES = 600
"""Memory of a state besides the characters of its group id, in bytes: its key, its numbers, its dict entry."""
BATCH_BYTES = 160


class StoredShare(NamedTuple):
    state: ShareState
    snapshot_epoch: int
    created_ms: int
    written_ms: int
    snapshot_offset: int  # the offset of its last snapshot
    updates: int  # since that snapshot


class ShareStateShard:
    """The state in one partition of `__share_group_state`; `memory` is its memory as of the last record."""

    __slots__ = ("applied_end", "ended", "memory", "partitions")

    def __init__(self, memory: ExactShare) -> None:
        self.memory = memory
        self.partitions: dict[SharePartitionKey, StoredShare] = {}
        self.ended: BoundedCache[SharePartitionKey, None] = BoundedCache(ENDED_BYTES_MAX)
        """The share partitions whose state was deleted and not initialized again, most recent last."""
        self.applied_end = 0

    def apply(self, offset: int, record: LogRecord) -> None:
        """Applies a record; nothing else changes the state."""
        self.applied_end = offset + 1
        read = read_record(record)
        if read is None:
            return
        key, what = read
        before = self._held_bytes(key)
        if what is None:
            self._end(key)
        elif type(what) is Snapshot:
            self._take_snapshot(key, what, offset)
        else:
            assert type(what) is StateUpdate
            self._take_update(key, what, offset)
        self.memory.bytes += self._held_bytes(key) - before

    def _held_bytes(self, key: SharePartitionKey) -> int:
        stored = self.partitions.get(key)
        return 0 if stored is None else state_bytes(key, len(stored.state.batches))

    def _end(self, key: SharePartitionKey) -> None:
        if self.partitions.pop(key, None) is not None:
            self.ended.remember(key, None)

    def _take_snapshot(self, key: SharePartitionKey, snapshot: Snapshot, offset: int) -> None:
        state = snapshot.state
        self.ended.forget(key)
        known = self.partitions.get(key)
        if known is not None:
            state = state._replace(
                state_epoch=max(state.state_epoch, known.state.state_epoch), leader_epoch=max(state.leader_epoch, known.state.leader_epoch)
            )
        self.partitions[key] = StoredShare(state, snapshot.snapshot_epoch, snapshot.created_ms, snapshot.written_ms, offset, 0)

    def _take_update(self, key: SharePartitionKey, update: StateUpdate, offset: int) -> None:
        known = self.partitions.get(key)
        if known is None:
            # The snapshot is missing, because the log is damaged or a client wrote it. The update is used as the whole state.
            self.partitions[key] = StoredShare(update.state, update.snapshot_epoch, 0, 0, offset, 1)
            return
        self.partitions[key] = known._replace(state=updated(known.state, update.state), updates=known.updates + 1)


def state_bytes(key: SharePartitionKey, batches: int = 0) -> int:
    """Returns the approximate memory of a stored state, including the batches reserved for it."""
    group_id = key.group_id
    letters = len(group_id) if group_id.isascii() else 4 * len(group_id)
    return STATE_BYTES + letters + BATCH_BYTES * max(batches, RESERVED_BATCHES)


def updated(known: ShareState, change: ShareState) -> ShareState:
    """Returns a state after a change. The start offset never decreases: a late request with a lower one does not move it. (Kafka would
    lower it, and lose the acknowledgements of the records between.)"""
    is_late = change.start_offset < known.start_offset
    start_offset = known.start_offset if is_late else change.start_offset
    return ShareState(
        known.state_epoch,
        max(known.leader_epoch, change.leader_epoch),
        start_offset,
        known.delivery_complete_count if 0 <= change.start_offset < known.start_offset else change.delivery_complete_count,
        merge(known.batches, change.batches, start_offset),
    )
