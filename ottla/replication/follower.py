"""Decides what a follower asks its leader next, and what it does with the answer.

A pure machine for one partition in one leader epoch. Each fetch names the follower's log end, the leader epoch that it follows and the
epoch of its last record; so the leader can say where the two histories part before it sends anything (KIP-595), and nothing is appended
behind a record that the leader never had. Truncation goes by epochs alone, never by the high watermark (KIP-101), and step by step when
the follower does not know the epoch that the leader names (KIP-279): each step cuts to the end of the largest epoch that both may
share, until a fetch is answered with records.

    FETCHING --records--> FETCHING                   append
    FETCHING --diverging epoch--> FETCHING           truncate, ask again
    FETCHING --out of range--> ASKING_BOUNDS         the leader deleted what would come next, or its log ends before
    ASKING_BOUNDS --leader's bounds--> FETCHING      restart the log at its start, or truncate to its end
    any --fenced--> STOPPED                          a newer leader exists; wait for the controller's request

Invariant: after an answer the machine has asked for at most one change, and the log is changed before it is asked again. An answer that
cannot be right (negative offsets, bounds in the wrong order, out of turn) changes nothing and reaches no assertion: it is a peer's. Left
out: the connection, sessions and batching of fetches, the log itself (`follower_log.py`).
"""

from __future__ import annotations

from enum import Enum

from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.types import NO_LEADER_EPOCH
from ottla.storage.epochs import LeaderEpochs


class FollowerState(Enum):
    FETCHING = "Fetching"
    ASKING_BOUNDS = "AskingBounds"
    STOPPED = "Stopped"


ALLOWED = {
    FollowerState.FETCHING: (FollowerState.ASKING_BOUNDS, FollowerState.STOPPED),
    FollowerState.ASKING_BOUNDS: (FollowerState.FETCHING, FollowerState.STOPPED),
    FollowerState.STOPPED: (),
}


@immutable(kw_only=True)
class FetchAt:
    """Ask for records from `offset` on; `last_fetched_epoch` is the epoch of the record before, -1 in an empty log."""

    offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


@immutable(kw_only=True)
class AskBounds:
    """Ask where the leader's log starts and ends (ListOffsets, earliest local and latest, as a replica)."""

    current_leader_epoch: int


@immutable(kw_only=True)
class Wait:
    """Ask for nothing before `replica.fetch.backoff.ms` has passed; without end when stopped."""

    is_forever: bool


class Step(Enum):
    """Changes to the log that an answer asks for."""

    APPEND = "append the records of the answer"
    TRUNCATE = "truncate to the offset"
    RESTART = "delete all records and start at the offset"
    WAIT = "try again later"
    NOTHING = "ask for the next thing"


@immutable
class Todo:
    step: Step
    offset: int = -1


class Follower:
    """One partition that follows one leader in one epoch; a new epoch makes a new machine."""

    __slots__ = ("leader_epoch", "leader_id", "state")

    def __init__(self, *, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.state = FollowerState.FETCHING

    def next_request(self, epochs: LeaderEpochs, log_end_offset: int) -> FetchAt | AskBounds | Wait:
        """The next request, given the log as it is now."""
        if self.state is FollowerState.STOPPED:
            return Wait(is_forever=True)
        if self.state is FollowerState.ASKING_BOUNDS:
            return AskBounds(current_leader_epoch=self.leader_epoch)
        last = epochs.epoch_at(log_end_offset - 1) if log_end_offset > 0 else NO_LEADER_EPOCH
        return FetchAt(offset=log_end_offset, current_leader_epoch=self.leader_epoch, last_fetched_epoch=last)

    def on_fetched(self, error: ErrorCode, diverging_epoch: tuple[int, int] | None, *, epochs: LeaderEpochs, log_end_offset: int) -> Todo:
        """The leader's answer to `FetchAt`; `diverging_epoch` is (epoch, end offset) as the leader has them."""
        if self.state is not FollowerState.FETCHING:
            return Todo(Step.WAIT)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._move(FollowerState.ASKING_BOUNDS)
            return Todo(Step.NOTHING)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if diverging_epoch is not None and min(diverging_epoch) < 0:
            return Todo(Step.WAIT)
        if diverging_epoch is not None:
            return Todo(Step.TRUNCATE, divergence_point(epochs, log_end_offset, *diverging_epoch))
        return Todo(Step.APPEND)

    def on_leader_bounds(self, error: ErrorCode, *, start: int, end: int, log_end_offset: int) -> Todo:
        """The leader's answer to `AskBounds`."""
        if self.state is not FollowerState.ASKING_BOUNDS:
            return Todo(Step.WAIT)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if not 0 <= start <= end:
            return Todo(Step.WAIT)
        self._move(FollowerState.FETCHING)
        if end < log_end_offset:
            return Todo(Step.TRUNCATE, end)
        if start > log_end_offset:
            return Todo(Step.RESTART, start)
        # The leader's log has reached ours in the meantime.
        return Todo(Step.NOTHING)

    def _on_error(self, error: ErrorCode) -> Todo:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._move(FollowerState.STOPPED)
            return Todo(Step.WAIT)
        return Todo(Step.WAIT)

    def _move(self, state: FollowerState) -> None:
        assert state in ALLOWED[self.state], f"a follower from {self.state} to {state}"
        self.state = state


def divergence_point(epochs: LeaderEpochs, log_end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """The offset to truncate this log to when the leader's largest epoch not above ours is `leader_epoch`, ending at `leader_end_offset`.

    If that epoch is known here too, both share it up to where it ends first. If not, the largest older one here is tried: its end
    is the offset, and the next fetch asks again with it (KIP-279). A log that has no epoch as old keeps no record from there on.
    """
    epoch, end_offset = epochs.end_offset_for(leader_epoch, log_end_offset)
    if epoch == leader_epoch:
        return min(end_offset, leader_end_offset, log_end_offset)
    if epoch < 0:
        return min(leader_end_offset, log_end_offset)
    return min(end_offset, log_end_offset)
