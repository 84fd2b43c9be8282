"""Records the history of the records of share partitions, and judges it. The broker reports acknowledgements when they arrive, acquisitions
when they are decided, and answers when they are sent. An era begins when a group's offsets are reset; earlier states of records are then
forgotten.

It checks that no member gets a record that was durably accepted, rejected or archived, even after a crash; that no record has two owners at
a time; that delivery counts only increase, never exceed the limit and never fall below a durable count; and that the coordinator accepts no
request of a replaced leader. At the end every existing record of the era must have been delivered and completed, by an acknowledgement or
by the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ottla.base.share_state import DeliveryState, StateBatch
from ottla.sharing.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW

DELIVERIES_MAX = 4
LOCK_MS = 300
FINISHED = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class Holder(NamedTuple):
    """The member that has acquired a record, the minimum time until which it has the record, and the share partition."""

    member: str
    until_ms: int
    share: Any
    count: int


class Era:
    """The records of one partition since the group's offsets were set."""

    def __init__(self, state_epoch: int, start: int) -> None:
        self.state_epoch = state_epoch
        self.start = start
        self.delivered: dict[int, int] = {}
        self.durable_counts: dict[int, int] = {}
        self.wished: dict[int, int] = {}  # records that a member has accepted or rejected
        self.done: dict[int, int] = {}  # and the member got an answer without an error
        self.holders: dict[int, Holder] = {}
        self.copied: set[int] = set()  # records whose copy to the dead-letter topic has begun


class ShareHistory:
    def __init__(self, partitions: int) -> None:
        self.eras = [Era(0, 0) for _ in range(partitions)]
        self.leaders = [0] * partitions
        self.log_starts = [0] * partitions
        self.present_epoch: Callable[[int], int] = lambda _partition: 0
        """The epoch of the leader that a partition has now, where there are several brokers."""
        self.deliveries = 0
        self.repeated = 0
        self.accepted = 0

    def begin_era(self, partition: int, state_epoch: int, start: int) -> None:
        self.eras[partition] = Era(state_epoch, start)

    def note_acknowledgement(self, partition: int, member: str, offset: int, kind: int, now_ms: int) -> int:
        """Notes an acknowledgement that has arrived, which may still be refused. Returns the record's delivery count; 0 if the member is
        not, or no longer, its owner. A late acknowledgement has no guarantee: if the record was archived meanwhile, the broker answers
        without an error, as Kafka does, whether the archived state is durable or not.
        """
        era = self.eras[partition]
        if kind in (ACCEPT, REJECT) and offset in era.delivered:
            era.wished[offset] = kind
        holder = era.holders.get(offset)
        if holder is None or holder.member != member or kind == RENEW:
            return 0
        del era.holders[offset]
        return holder.count if now_ms < holder.until_ms else 0

    def settled(self, partition: int, state_epoch: int, offset: int, kind: int, count: int) -> None:
        """Notes that an acknowledgement was answered: it is durable."""
        era = self.eras[partition]
        if era.state_epoch != state_epoch:
            return
        if kind == RELEASE:
            era.durable_counts[offset] = max(era.durable_counts.get(offset, 0), count)
        elif kind in (ACCEPT, REJECT):
            era.done.setdefault(offset, kind)
            self.accepted += kind == ACCEPT

    def left(self, member: str) -> None:
        """Notes the end of the member's session: its records are available again."""
        for era in self.eras:
            era.holders = {offset: holder for offset, holder in era.holders.items() if holder.member != member}

    def acquired(self, partition: int, offset: int, holder: Holder, now_ms: int, leader_epoch: int) -> None:
        """Notes that a member acquires this record from the leader of this epoch. A replaced leader that does not know it may still deliver
        records; acknowledgements of these have no effect.
        """
        era = self.eras[partition]
        if leader_epoch < self.present_epoch(partition):
            return
        if holder.share.state_epoch != era.state_epoch or offset < self.log_starts[partition]:
            return  # from before a reset, or deleted and found again after a restart: it is not judged any more
        where, count = f"s-{partition}@{offset}", holder.count
        assert offset not in era.done, f"again: {where} was done with ({era.done[offset]}) and goes to {holder.member}"
        assert offset not in era.copied, f"copied: {where} is a dead letter and goes to {holder.member}"
        assert 1 <= count <= DELIVERIES_MAX, f"limit: {where} is delivered for the {count}. time"
        durable = era.durable_counts.get(offset, 0)
        assert count > durable, f"uncounted: {where} is delivered for the {count}. time, {durable} deliveries were durable"
        before = era.holders.get(offset)
        if before is not None and before.share is holder.share:
            assert now_ms >= before.until_ms, f"two owners: {where} goes to {holder.member}, {before.member} has it"
        era.holders[offset] = holder
        self.repeated += offset in era.delivered
        era.delivered[offset] = max(era.delivered.get(offset, 0), count)
        self.deliveries += 1

    def deleted(self, partition: int, log_start: int) -> None:
        """Records below the new log start are not judged any more."""
        self.log_starts[partition] = max(self.log_starts[partition], log_start)

    def coordinator_accepted(self, partition: int, leader_epoch: int) -> None:
        """Notes that the coordinator has accepted a request of this leader epoch."""
        before = self.leaders[partition]
        assert leader_epoch >= before, f"old leader: s-{partition} of epoch {leader_epoch} was accepted after {before}"
        self.leaders[partition] = leader_epoch

    def wrote(self, partition: int, state_epoch: int) -> None:
        """Notes that the coordinator has accepted a write of this state."""

    def forgotten(self, partition: int) -> None:
        """Notes that the coordinator has deleted the state."""

    def copying(self, partition: int, state_epoch: int, first: int, last: int) -> None:
        """Notes that a leader begins to copy records to the dead-letter topic: no member may get them from now on."""
        era = self.eras[partition]
        if era.state_epoch == state_epoch:
            era.copied.update(range(first, last + 1))

    def judge_letters(self, partition: int, letters: Collection[int]) -> None:
        """Judges the dead-letter topic at the end of the run; it has these offsets of the partition."""
        era = self.eras[partition]
        for offset, kind in era.done.items():
            is_dead = kind == REJECT and offset >= self.log_starts[partition]
            assert not is_dead or offset in letters, f"no letter: s-{partition}@{offset} was rejected, and was not copied"

    def judge(self, partition: int, end: int, start_offset: int, batches: tuple[StateBatch, ...]) -> None:
        """Judges the partition at the end of the run. Its log ends at `end`; the last argument is the coordinator's state."""
        era = self.eras[partition]
        terminal = {offset for batch in batches if batch.delivery_state in FINISHED for offset in range(batch[0], batch[1] + 1)}
        for offset in range(max(era.start, self.log_starts[partition]), end):
            where = f"s-{partition}@{offset}"
            assert offset in era.delivered, f"lost: {where} was never delivered"
            assert offset < start_offset or offset in terminal, f"stuck: {where} is not finished, the state begins at {start_offset}"
            is_given_up = era.delivered[offset] >= DELIVERIES_MAX
            assert offset in era.wished or is_given_up, f"dropped: {where} is finished without an acknowledgement"
