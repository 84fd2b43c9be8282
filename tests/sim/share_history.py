"""The history of the records of share partitions, and its verdicts.

The broker reports acknowledgements as they come in, acquisitions as they are decided, answers as they go out. An era begins when a group's
offsets are reset; what was true of records before does not count any more.

Verdicts: no member gets a record that was accepted, rejected or archived for good, not after any crash; no record has two owners at a time;
deliveries are counted up, never beyond the limit, never back behind what was made durable; the coordinator accepts no leader that was
replaced; in the end every record of the era that is still there has been delivered and is finished, by an acknowledgement or by the limit.
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
    """The member that has a record, at least until when, by which share partition."""

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
        self.wished: dict[int, int] = {}  # a member has accepted or rejected it
        self.done: dict[int, int] = {}  # and got a good answer
        self.holders: dict[int, Holder] = {}
        self.copied: set[int] = set()  # a copy to the dead-letter topic has begun


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
        """Notes an acknowledgement that has come in; returns its delivery of this record, 0 if the member is not its owner (any more). It
        may still be refused.

        A late acknowledgement promises nothing: when the broker has given the record up meanwhile, it answers without an error (as Kafka
        does), whether that is durable or not.
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
        """The member's session ends: its records are free."""
        for era in self.eras:
            era.holders = {offset: holder for offset, holder in era.holders.items() if holder.member != member}

    def acquired(self, partition: int, offset: int, holder: Holder, now_ms: int, leader_epoch: int) -> None:
        """Notes that a member gets this record from the leader of this epoch. One that was replaced, and does not know it, gives out what
        it has; no acknowledgement of that counts."""
        era = self.eras[partition]
        if leader_epoch < self.present_epoch(partition):
            return
        if holder.share.state_epoch != era.state_epoch or offset < self.log_starts[partition]:
            return  # of before a reset, or deleted and found again by a restart: what becomes of it does not count any more
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
        """Notes that the coordinator has taken a write of this state."""

    def forgotten(self, partition: int) -> None:
        """Notes that the coordinator has deleted the state."""

    def copying(self, partition: int, state_epoch: int, first: int, last: int) -> None:
        """Notes that a leader begins to copy dead letters: no member may get them from now on."""
        era = self.eras[partition]
        if era.state_epoch == state_epoch:
            era.copied.update(range(first, last + 1))

    def judge_letters(self, partition: int, letters: Collection[int]) -> None:
        """Judges the dead-letter topic when all is over: it has these offsets of the partition."""
        era = self.eras[partition]
        for offset, kind in era.done.items():
            is_dead = kind == REJECT and offset >= self.log_starts[partition]
            assert not is_dead or offset in letters, f"no letter: s-{partition}@{offset} was rejected, and was not copied"

    def judge(self, partition: int, end: int, start_offset: int, batches: tuple[StateBatch, ...]) -> None:
        """Judges the partition when all is over: its log ends at `end`, and this is the coordinator's state."""
        era = self.eras[partition]
        terminal = {offset for batch in batches if batch.delivery_state in FINISHED for offset in range(batch[0], batch[1] + 1)}
        for offset in range(max(era.start, self.log_starts[partition]), end):
            where = f"s-{partition}@{offset}"
            assert offset in era.delivered, f"lost: {where} was never delivered"
            assert offset < start_offset or offset in terminal, f"stuck: {where} is not finished, the state begins at {start_offset}"
            is_given_up = era.delivered[offset] >= DELIVERIES_MAX
            assert offset in era.wished or is_given_up, f"dropped: {where} is finished without an acknowledgement"
