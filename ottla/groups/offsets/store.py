"""The committed offsets of a shard, and the pending offsets of open transactions.

The store is built from the log: `put` and `remove` for plain records, `put_pending` for records of an open transaction, `end_transaction`
for its marker. A restart gives the same result.

A transaction's offsets take effect at its marker, not at their own position in the log. The marker therefore overwrites a plain commit
between the two. Compaction does not know that: it would keep the plain commit, which is the later record, and drop the transactional one.
`rewrites` lists such keys, and the machine logs their values again after the marker. `rewrites` is derived from the log, so a new
coordinator continues.

Invariants: `open_transactions` is the inverse of `pending`; a tombstone removes the pending offsets of its key too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.base.uuids import ZERO_UUID, Uuid

OffsetKey = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1  # only in a commit with a retention time (OffsetCommit before version 5)
    topic_id: Uuid = ZERO_UUID
    record_offset: int = -1  # the record's offset in the log


class OffsetStore:
    __slots__ = ("committed", "open_transactions", "pending", "rewrites")

    def __init__(self) -> None:
        self.committed: dict[str, dict[OffsetKey, CommittedOffset]] = {}
        self.pending: dict[int, dict[str, dict[OffsetKey, CommittedOffset]]] = {}  # by producer id
        self.open_transactions: dict[str, dict[OffsetKey, dict[int, None]]] = {}  # the producer ids with a pending offset for a key
        self.rewrites: dict[tuple[str, OffsetKey], None] = {}

    # Questions

    def of_group(self, group_id: str) -> dict[OffsetKey, CommittedOffset]:
        return self.committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        offsets = self.committed.get(group_id)
        return None if offsets is None else offsets.get((topic, partition))

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        keys = self.open_transactions.get(group_id)
        return keys is not None and (topic, partition) in keys

    def pending_keys(self, group_id: str) -> Collection[OffsetKey]:
        return self.open_transactions.get(group_id, ())

    def newest_record(self, group_id: str, key: OffsetKey) -> int:
        """Returns the log offset of the last record for this partition, committed or pending."""
        committed = self.of_group(group_id).get(key)
        pending = self.open_transactions.get(group_id, {}).get(key, ())
        newest = -1 if committed is None else committed.record_offset
        return max((newest, *(self.pending[producer_id][group_id][key].record_offset for producer_id in pending)))

    def has_offsets(self, group_id: str) -> bool:
        return bool(self.committed.get(group_id) or self.open_transactions.get(group_id))

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        keys = dict.fromkeys(self.committed.get(group_id, ()))
        keys.update(dict.fromkeys(self.open_transactions.get(group_id, ())))
        return list(keys)

    def group_ids(self) -> list[str]:
        return list(dict.fromkeys([*self.committed, *self.open_transactions]))

    def all_of(self, group_id: str) -> list[tuple[OffsetKey, CommittedOffset]]:
        """Returns every stored offset of the group, committed and pending."""
        kept = list(self.of_group(group_id).items())
        for key, producer_ids in self.open_transactions.get(group_id, {}).items():
            kept += [(key, self.pending[producer_id][group_id][key]) for producer_id in producer_ids]
        return kept

    def pending_count(self, group_id: str) -> int:
        return len(self.open_transactions.get(group_id, ()))

    # Applying the log

    def put(self, group_id: str, key: OffsetKey, offset: CommittedOffset) -> None:
        self.committed.setdefault(group_id, {})[key] = offset
        if self.rewrites:
            self.rewrites.pop((group_id, key), None)

    def remove(self, group_id: str, key: OffsetKey) -> None:
        """Applies a tombstone: removes the committed and pending offsets of the partition."""
        offsets = self.committed.get(group_id)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self.committed[group_id]
        self.rewrites.pop((group_id, key), None)
        for producer_id in list(self.open_transactions.get(group_id, {}).get(key, ())):
            self._forget_pending(producer_id, group_id, key)

    def put_pending(self, producer_id: int, group_id: str, key: OffsetKey, offset: CommittedOffset) -> None:
        self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[key] = offset
        self.open_transactions.setdefault(group_id, {}).setdefault(key, {})[producer_id] = None

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Applies a marker: commits or drops the producer's pending offsets."""
        for group_id, offsets in self.pending.pop(producer_id, {}).items():
            for key, offset in offsets.items():
                self._forget_open(producer_id, group_id, key)
                if is_commit:
                    self._materialize(group_id, key, offset)

    def _materialize(self, group_id: str, key: OffsetKey, offset: CommittedOffset) -> None:
        offsets = self.committed.setdefault(group_id, {})
        overtaken = offsets.get(key)
        offsets[key] = offset
        if overtaken is not None and (overtaken.record_offset > offset.record_offset or (group_id, key) in self.rewrites):
            self.rewrites[group_id, key] = None

    def _forget_pending(self, producer_id: int, group_id: str, key: OffsetKey) -> None:
        groups = self.pending[producer_id]
        del groups[group_id][key]
        if not groups[group_id]:
            del groups[group_id]
        if not groups:
            del self.pending[producer_id]
        self._forget_open(producer_id, group_id, key)

    def _forget_open(self, producer_id: int, group_id: str, key: OffsetKey) -> None:
        keys = self.open_transactions[group_id]
        del keys[key][producer_id]
        if not keys[key]:
            del keys[key]
        if not keys:
            del self.open_transactions[group_id]
