"""The in-sync replicas (ISR) of a partition, and the change that the leader has proposed to the controller.

Only the controller changes the ISR. A leader proposes a change (AlterPartition) and waits. Until the proposal is answered, the high
watermark waits for joining replicas and for leaving ones. The controller may have accepted the proposal or not, and the larger set is safe
in both cases (KIP-497). An expansion and a shrink are never pending together.

A replica may join only if its log has reached the high watermark *and* the start of the current leader epoch. If acknowledgements wait for
the disk, its durable end must have reached both offsets. Its fetches must also have the broker epoch that the controller knows, because a
broker that restarted with an empty disk has another broker epoch (I13, KIP-903).

The states are immutable, and this module sends nothing. `progress.py` has the progress of each replica.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ottla.base.immutable import immutable
from ottla.replication.progress import UNKNOWN_EPOCH, FollowerProgress


class IsrPhase(Enum):
    """The kind of change that was proposed and is not answered yet; COMMITTED if there is none."""

    COMMITTED = "Committed"
    PENDING_EXPAND = "PendingExpand"
    PENDING_SHRINK = "PendingShrink"
    PENDING_PROOF = "PendingProof"


ALLOWED = {
    IsrPhase.COMMITTED: (IsrPhase.PENDING_EXPAND, IsrPhase.PENDING_SHRINK, IsrPhase.PENDING_PROOF),
    IsrPhase.PENDING_EXPAND: (IsrPhase.COMMITTED,),
    IsrPhase.PENDING_SHRINK: (IsrPhase.COMMITTED,),
    IsrPhase.PENDING_PROOF: (IsrPhase.COMMITTED,),
}


@immutable(kw_only=True)
class IsrState:
    """`members` is the ISR that the controller last confirmed; `moving` are the replicas of a pending change."""

    members: tuple[int, ...]
    phase: IsrPhase = IsrPhase.COMMITTED
    moving: tuple[int, ...] = ()

    @property
    def is_pending(self) -> bool:
        return self.phase is not IsrPhase.COMMITTED

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that the controller may currently consider in sync."""
        return self.members + self.moving if self.phase is IsrPhase.PENDING_EXPAND else self.members

    @property
    def proposed(self) -> tuple[int, ...]:
        """The proposed ISR."""
        if self.phase is IsrPhase.PENDING_SHRINK:
            return tuple(member for member in self.members if member not in self.moving)
        return self.maximal

    def expand(self, replica_id: int) -> IsrState:
        assert replica_id not in self.members, f"replica {replica_id} is in sync already"
        return self._move(IsrPhase.PENDING_EXPAND, (replica_id,))

    def shrink(self, leaving: Iterable[int]) -> IsrState:
        moving = tuple(leaving)
        assert moving and all(replica_id in self.members for replica_id in moving), f"{moving} cannot leave {self.members}"
        return self._move(IsrPhase.PENDING_SHRINK, moving)

    def confirm(self) -> IsrState:
        """Proposes the unchanged ISR. The proposal shows the controller that enough replicas are in sync and that the leader's log is open.
        Until then, the controller keeps its list of eligible replicas: replicas outside the ISR that it could elect (KIP-966)."""
        return self._move(IsrPhase.PENDING_PROOF, ())

    def _move(self, phase: IsrPhase, moving: tuple[int, ...]) -> IsrState:
        assert phase in ALLOWED[self.phase], f"an ISR change from {self.phase} to {phase}"
        return IsrState(members=self.members, phase=phase, moving=moving)


@immutable(kw_only=True)
class IsrProposal:
    """The content of an AlterPartition request: the new ISR with each member's broker epoch, and the partition epoch that it changes."""

    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int


def may_join(follower: FollowerProgress, *, high_watermark: int, epoch_start_offset: int, known_broker_epoch: int | None) -> bool:
    """Whether this follower may be proposed. `known_broker_epoch` is None if the controller does not know the broker.

    A fetch without a broker epoch never qualifies, because it may be from before a restart of the broker.
    """
    if follower.broker_epoch == UNKNOWN_EPOCH or follower.broker_epoch != known_broker_epoch:
        return False
    return follower.durable_end >= high_watermark and follower.durable_end >= epoch_start_offset


def lagging(
    members: Iterable[int], followers: dict[int, FollowerProgress], leader_end_offset: int, *, now_ms: int, lag_max_ms: int
) -> tuple[int, ...]:
    """Returns the members that lag: their log end is not the leader's, and they last caught up more than `replica.lag.time.max.ms` ago."""
    out = []
    for member in members:
        follower = followers.get(member)
        if follower is None:
            continue  # the leader itself
        if follower.log_end_offset != leader_end_offset and now_ms - follower.last_caught_up_ms > lag_max_ms:
            out.append(member)
    return tuple(out)
