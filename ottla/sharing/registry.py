"""The share partitions of this broker. `get` creates one at the first request of a group's member.

A share partition belongs to one leader epoch. When this broker loses the leadership, the share partition stays open, but requests check
whether this broker leads. `get` with another epoch closes it and creates a new one. A share partition is also closed:

- when its state cannot be loaded, or the persister answers with an error of `share_partition.CLOSING`;
- when the last session of its group on this broker has ended, and its dead letters are copied;
- when the group is deleted, or its offsets are altered or deleted;
- when the topic is deleted, and when the broker stops.

A later session reads the stored state again, because it may have been altered or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.base.ports import Clock, Timers
from ottla.base.share_state import Persister, SharePartitionKey
from ottla.base.uuids import Uuid
from ottla.sharing.dead_letters import CopyDeadLetters, no_dead_letter_topics
from ottla.sharing.partition_memory import PartitionMemory
from ottla.sharing.share_partition import GroupTerms, InTurn, SharePartition, at_once

FindStart = Callable[[str], int]


class SharePartitions:
    """See the module. `terms_of` returns the settings of a group."""

    def __init__(
        self, *, persister: Persister, clock: Clock, timers: Timers, terms_of: Callable[[str], GroupTerms],
        memory: PartitionMemory | None = None, in_turn: InTurn = at_once, copy_dead_letters: CopyDeadLetters = no_dead_letter_topics,
    ) -> None:  # fmt: skip
        """`in_turn` calls a function in an iteration of the event loop that has time for it."""
        self._copy_dead_letters = copy_dead_letters
        self._in_turn = in_turn
        self._persister = persister
        self._clock = clock
        self._timers = timers
        self.terms_of = terms_of
        self._memory = memory or PartitionMemory()
        self._groups: dict[str, dict[tuple[Uuid, int], SharePartition]] = {}

    def __iter__(self) -> Iterator[SharePartition]:
        for group in list(self._groups.values()):
            yield from list(group.values())

    def find(self, key: SharePartitionKey, leader_epoch: int) -> SharePartition | None:
        """Returns the share partition of this leader epoch, or None."""
        share = self._groups.get(key.group_id, {}).get((key.topic_id, key.partition))
        return share if share is not None and share.leader_epoch == leader_epoch else None

    def get(self, key: SharePartitionKey, leader_epoch: int, find_start: FindStart) -> SharePartition:
        """Returns the share partition of this leader epoch, which is created if necessary. The share partition may still be loading. If its
        state could not be loaded, it is closed and its `error` says why. Raises `ApiError` COORDINATOR_NOT_AVAILABLE if there is no memory
        for a new one.
        """
        topic_partition = (key.topic_id, key.partition)
        group = self._groups.get(key.group_id)
        known = group.get(topic_partition) if group is not None else None
        if known is not None:
            if known.leader_epoch == leader_epoch:
                known.closes_when_copied = False
                return known
            known.close()
        self._memory.require_free()
        group_id = key.group_id
        share = SharePartition(
            key, leader_epoch, persister=self._persister, clock=self._clock, timers=self._timers,
            terms=lambda: self.terms_of(group_id), find_start=find_start, on_closed=self._forget, memory=self._memory,
            in_turn=self._in_turn, copy_dead_letters=self._copy_dead_letters,
        )  # fmt: skip
        self._groups.setdefault(group_id, {})[topic_partition] = share
        share.load()
        return share

    def of_group(self, group_id: str) -> list[SharePartition]:
        return list(self._groups.get(group_id, {}).values())

    def close_group(self, group_id: str, done: Callable[[], object]) -> None:
        """Closes the share partitions of a group, some in each iteration of the loop. Calls `done` when all are closed."""
        shares = self.of_group(group_id)
        if not shares:
            done()
            return
        for share in shares:
            self._in_turn(share.close)
        self._in_turn(done)

    def close_where(self, matches: Callable[[SharePartition], bool]) -> None:
        """Closes the share partitions that match `matches`, some in each iteration of the loop. Used for deleted topics."""
        for share in self:
            if matches(share):
                self._in_turn(share.close)

    def close_all(self) -> None:
        for share in self:
            share.close()

    def _forget(self, share: SharePartition) -> None:
        key = share.key
        group = self._groups.get(key.group_id)
        if group is not None and group.get((key.topic_id, key.partition)) is share:
            del group[key.topic_id, key.partition]
            if not group:
                del self._groups[key.group_id]
