"""The set of in-sync replicas, and the change of it that the leader has proposed to the controller.

The set of in-sync replicas is the controller's; a leader proposes a change (AlterPartition) and waits. Until the answer comes, a
replica that is joining already counts for the high watermark and one that is leaving still counts: the controller may have agreed or
not, and in both cases the larger set is the safe one (KIP-497). Growing and shrinking never overlap.

A replica may join only if it has reached the high watermark *and* the start of the current leader epoch (both on its disk, where
acknowledgements wait for that), and only in the life (broker epoch) in which the controller knows it: a broker that came back with an empty
disk is another one (I13, KIP-903).

Pure: states in, states out. Left out: sending the proposal, the progress of each replica (`progress.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from ottla.base.immutable import immutable
from ottla.replication.progress import UNKNOWN_EPOCH, FollowerProgress


class IsrPhase(Enum):
    """The change that has been proposed to the controller and is not answered yet."""

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
    """`members` as the controller last confirmed them; `moving` join or leave, if the change is agreed to."""

    members: tuple[int, ...]
    phase: IsrPhase = IsrPhase.COMMITTED
    moving: tuple[int, ...] = ()

    @property
    def is_pending(self) -> bool:
        return self.phase is not IsrPhase.COMMITTED

    @property
    def maximal(self) -> tuple[int, ...]:
        """Every replica that the controller may by now hold to be in sync."""
        return self.members + self.moving if self.phase is IsrPhase.PENDING_EXPAND else self.members

    @property
    def proposed(self) -> tuple[int, ...]:
        """The set that the controller was asked for."""
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
        """Proposes the same set: the leader's log is open, so the controller need not keep other replicas eligible for that."""
        return self._move(IsrPhase.PENDING_PROOF, ())

    def _move(self, phase: IsrPhase, moving: tuple[int, ...]) -> IsrState:
        assert phase in ALLOWED[self.phase], f"an ISR change from {self.phase} to {phase}"
        return IsrState(members=self.members, phase=phase, moving=moving)


@immutable(kw_only=True)
class IsrProposal:
    """The content of an AlterPartition request: the new set with each member's broker epoch, and the version that it changes."""

    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int


def may_join(follower: FollowerProgress, *, high_watermark: int, epoch_start_offset: int, known_broker_epoch: int | None) -> bool:
    """Whether this follower may be proposed; `known_broker_epoch` None: the controller knows no such broker.

    A fetch that names no broker epoch never qualifies: nothing proves which life of the broker it came from.
    """
    if follower.broker_epoch == UNKNOWN_EPOCH or follower.broker_epoch != known_broker_epoch:
        return False
    return follower.durable_end >= high_watermark and follower.durable_end >= epoch_start_offset


def lagging(
    members: Iterable[int], followers: dict[int, FollowerProgress], *, leader_end_offset: int, now_ms: int, lag_max_ms: int
) -> tuple[int, ...]:
    """Members that are not at the leader's end and have not been for longer than `replica.lag.time.max.ms`."""
    out = []
    for member in members:
        follower = followers.get(member)
        if follower is None:
            continue  # the leader itself
        if follower.log_end_offset != leader_end_offset and now_ms - follower.last_caught_up_ms > lag_max_ms:
            out.append(member)
    return tuple(out)
