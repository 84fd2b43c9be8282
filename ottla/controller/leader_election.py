"""Leader election as pure functions. Their input: a partition's replicas in order, its ISR and eligible replicas, and what is known of the
brokers (`Standing`).

After a failure the controller elects the first of these replicas (KIP-966, for a store that keeps the last member of an in-sync set):

1. an in-sync replica whose broker has not restarted, or has restarted and proved that its logs are whole;
2. an eligible replica;
3. a last member of the in-sync set that restarted without a proof, then a replica that was a member or eligible until it restarted without
   a proof. This needs that no absent replica may hold more records. The last leader is preferred; a broker that lacks some of its data
   directories is the last choice. A broker that lacks all of them, as after a replaced disk, is not chosen. The partition then waits for
   the operator, unless all replicas are empty;
4. if the topic allows unclean elections, any live replica: the last leader first, empty replicas last. Records may be lost. The result and
   a log line say so (P10);
5. on an operator's request, if no other replica can be elected: a replica whose log has failed (`elect_damaged`).

An intact last leader is still in sync or eligible, so no rule mentions it. If no replica can be elected, the partition waits for a replica
that may hold more records than the live replicas.

The in-sync set (`in_sync_after`). A broker that has ended or restarted is removed from the set unless it is the last member. If the last
members end or restart together, the set keeps the members that have proved their logs. If there are none, it keeps the absent members,
whose logs may be whole. If there are none either, it keeps the other members, empty ones last. Without a leader the set is empty when all
last members are present and have lost all records (`in_sync_without_leader`).

The eligible replicas (`eligible_after`). A leader's high watermark does not rise while the in-sync set is smaller than
`min.insync.replicas`. A replica that was in sync when the set became that small therefore has all acknowledged records. It is eligible
after it was removed from the set. Its eligibility ends when the set is large enough again, when its broker restarts without a proof, when
its directory fails, and when it is no longer a replica. It also ends after elections of kinds 3 to 5, because their leader may have fewer
records. Replicas that restarted without a proof and are no longer eligible are remembered for rule 3 (`last_known_after`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.immutable import immutable

ANY_SIZE = 1 << 15
"""An `in_sync_min` that no in-sync set reaches."""


class Choice(Enum):
    """The kind of replica that was elected; the value is part of a log line."""

    IN_SYNC = "in sync"
    ELIGIBLE = "eligible"
    UNPROVED = "the last in sync, without a proof that its log is whole"
    EMPTY = "as empty as all other replicas, whose data directories are gone"
    UNCLEAN = "not in sync"


@immutable
class Elected:
    leader: int
    isr: tuple[int, ...]
    choice: Choice = Choice.IN_SYNC

    @property
    def is_lossless(self) -> bool:
        """Whether the leader holds all acknowledged records."""
        return self.choice in (Choice.IN_SYNC, Choice.ELIGIBLE)


@immutable(kw_only=True)
class Standing:
    """The brokers as an election regards them. Brokers in `restarted` are live under a new epoch. Brokers in `lost` have not proved that
    their logs are whole, or the replica's directory has failed. Brokers in `reduced` have lost some of their data directories, brokers in
    `emptied` all of them. Brokers in `leaving` are live and stop soon."""

    live: Collection[int]
    restarted: Collection[int] = ()
    lost: Collection[int] = ()
    reduced: Collection[int] = ()
    emptied: Collection[int] = ()
    leaving: Collection[int] = ()

    def without(self, failed: Collection[int]) -> Standing:
        """Returns the standing for a partition whose replicas on these brokers have failed."""
        live = [broker_id for broker_id in self.live if broker_id not in failed]
        return replace(self, live=live, lost=[*self.lost, *failed])

    def has_run_on(self, broker_id: int) -> bool:
        return broker_id in self.live and broker_id not in self.restarted

    def is_proved(self, broker_id: int) -> bool:
        """Whether the broker is live and still holds all records that it held."""
        return broker_id in self.live and broker_id not in self.lost

    def is_there_unproved(self, broker_id: int) -> bool:
        return broker_id in self.live and broker_id in self.lost

    def may_lead(self, broker_id: int) -> bool:
        return broker_id in self.live and broker_id not in self.leaving


UNCHANGED = Standing(live=())
"""The standing if no broker has restarted."""


def elect_after_failure(partition: PartitionMetadata, standing: Standing, *, is_unclean_allowed: bool = False) -> Elected | None:
    """Elects a leader for a partition whose leader has ended or restarted. Returns None if no replica may lead, or if the partition's
    state is missing or damaged: the next leader epoch is not known then."""
    if partition.partition_epoch < 0:
        return None
    isr = in_sync_after(partition.isr, standing)
    for replica in partition.replicas:
        if replica in isr and standing.is_proved(replica) and standing.may_lead(replica):
            return Elected(replica, tuple(member for member in isr if standing.is_proved(member)))
    eligible = [replica for replica in partition.eligible if replica not in standing.lost]
    for replica in partition.replicas:
        if replica in eligible and standing.may_lead(replica):
            return Elected(replica, (replica,), Choice.ELIGIBLE)
    if not eligible and all(map(standing.is_there_unproved, isr)):
        elected = _elect_unproved(partition, isr, standing)
        if elected is not None:
            return elected
    if is_unclean_allowed:
        for replica in _fullest_first(partition, standing):
            if standing.may_lead(replica):
                return Elected(replica, (replica,), Choice.UNCLEAN)
    return None


def elect_damaged(partition: PartitionMetadata, standing: Standing) -> Elected | None:
    """Elects a live replica although its log may have failed; prefers members of the in-sync set, eligible and last known replicas.
    `standing` ignores failed logs. The elected leader gives up its damaged records."""
    held = (*partition.isr, *partition.eligible, *partition.last_known)
    for replica in sorted(_fullest_first(partition, standing), key=lambda replica: replica not in held):
        if standing.may_lead(replica):
            return Elected(replica, (replica,), Choice.UNCLEAN)
    return None


def _elect_unproved(partition: PartitionMetadata, isr: Sequence[int], standing: Standing) -> Elected | None:
    """Elects a replica that restarted without a proof, once no other replica could hold more."""
    emptied = emptied_after(partition, standing)
    is_empty = len(emptied) == len(partition.replicas)
    members = [replica for replica in _fullest_first(partition, standing) if is_empty or replica not in emptied]
    in_sync = [replica for replica in members if replica in isr]
    candidates = [*in_sync, *(replica for replica in members if is_empty or replica in partition.last_known)]
    for replica in sorted(candidates, key=lambda replica: not is_empty and replica in standing.reduced):
        if standing.may_lead(replica):
            return Elected(replica, (replica,), Choice.EMPTY if is_empty else Choice.UNPROVED)
    return None


def elect_preferred(partition: PartitionMetadata, standing: Standing) -> Elected | None:
    """Elects the first replica if it is live, in sync and not about to stop."""
    preferred = partition.replicas[0]
    return Elected(preferred, partition.isr) if preferred in partition.isr and standing.may_lead(preferred) else None


def elect_for_shutdown(partition: PartitionMetadata, standing: Standing) -> Elected | None:
    """Elects an in-sync replica whose broker is not about to stop. Returns None if there is none: the leader then stays."""
    staying = tuple(member for member in partition.isr if member not in standing.leaving)
    for replica in partition.replicas:
        if replica in staying and standing.may_lead(replica):
            return Elected(replica, staying)
    return None


def elect_reassigned(target: Sequence[int], isr: Sequence[int], standing: Standing) -> Elected | None:
    """Elects the first replica of `target` that is live and in sync. Removes the other replicas from the in-sync set."""
    staying = tuple(member for member in isr if member in target)
    for replica in target:
        if replica in staying and standing.may_lead(replica):
            return Elected(replica, staying)
    return None


def in_sync_after(isr: Sequence[int], standing: Standing) -> tuple[int, ...]:
    """Returns the members that remain in the set: at least one, unless `isr` is empty."""
    is_away, is_filled = (lambda member: member not in standing.live), (lambda member: member not in standing.emptied)
    for remains in (standing.has_run_on, standing.is_proved, is_away, is_filled):
        members = tuple(filter(remains, isr))
        if members:
            return members
    return tuple(isr)


def in_sync_without_leader(partition: PartitionMetadata, standing: Standing) -> tuple[int, ...]:
    """Returns the in-sync set of a partition that no broker can lead. If all remaining members restarted without a proof, the eligible
    replicas replace them. Without eligible replicas, only empty members are removed, so the set may become empty."""
    isr = in_sync_after(partition.isr, standing)
    if not all(map(standing.is_there_unproved, isr)):
        return isr
    eligible = tuple(replica for replica in partition.eligible if replica not in standing.lost)
    return eligible or tuple(member for member in isr if member not in standing.emptied)


def in_sync_min_while_eligible(partition: PartitionMetadata, in_sync_min: int) -> int:
    """Returns the `in_sync_min` of decisions that the leader did not request. They keep eligible replicas whatever the size of the in-sync
    set, because a restarted leader may not have opened its log yet."""
    return ANY_SIZE if partition.eligible else in_sync_min


def eligible_after(partition: PartitionMetadata, isr: Collection[int], in_sync_min: int, lost: Collection[int] = ()) -> tuple[int, ...]:
    """Returns the eligible replicas after `isr` replaces the partition's in-sync set. `in_sync_min` is `min.insync.replicas`."""
    if len(isr) >= min(in_sync_min, len(partition.replicas)):
        return ()
    return tuple(
        replica
        for replica in partition.replicas
        if replica not in isr and replica not in lost and (replica in partition.isr or replica in partition.eligible)
    )


def last_known_after(
    partition: PartitionMetadata, isr: Collection[int], eligible: Collection[int], in_sync_min: int, standing: Standing
) -> tuple[int, ...]:
    """Returns the replicas that would be eligible if they had not restarted without a proof. Callers pass `ANY_SIZE` while the partition
    has no leader, because the size of the in-sync set does not matter then."""
    if len(isr) >= in_sync_min:
        return ()
    held = [*(replica for replica in (*partition.isr, *partition.eligible) if replica in standing.lost), *partition.last_known]
    out = (*isr, *eligible, *emptied_after(partition, standing))
    return tuple(replica for replica in partition.replicas if replica in held and replica not in out)


def emptied_after(partition: PartitionMetadata, standing: Standing) -> tuple[int, ...]:
    """Returns the replicas noted in `partition.emptied` and the replicas on emptied brokers. Returns none if the partition has no state
    yet."""
    if partition.partition_epoch < 0:  # it has no state yet, and nothing was written to it
        return ()
    return tuple(replica for replica in partition.replicas if replica in standing.emptied or replica in partition.emptied)


def _fullest_first(partition: PartitionMetadata, standing: Standing) -> Iterable[int]:
    """Returns the replicas ordered by their losses: replicas without a lost directory first, empty ones last. Among equals, the last leader
    is first."""
    last = max(partition.leader, partition.last_leader)  # one of them is NO_LEADER
    emptied = emptied_after(partition, standing)
    return sorted(partition.replicas, key=lambda replica: (replica in emptied, replica in standing.reduced, replica != last))
