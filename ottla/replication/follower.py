"""The state machine of a follower: decides the next request to the leader, and what to do with the answer.

It has no side effects, and is for one partition in one leader epoch. Each fetch has the follower's log end, the current leader epoch and
the epoch of the last record. The leader can therefore report where the logs diverge before it sends records (KIP-595), and nothing is
appended after a record that the leader does not have. After a fetch, truncation depends only on epochs, never on the high watermark
(KIP-101); after an offset out of range it depends on the leader's log start and log end (its *bounds*). If the follower does not know the
leader's epoch, it truncates in steps (KIP-279): each step truncates to the end of the largest epoch that both logs may share, until a fetch
returns records.

    FETCHING --records--> FETCHING                   append
    FETCHING --diverging epoch--> FETCHING           truncate, fetch again
    FETCHING --out of range--> FETCHING              truncate records of an epoch above the leader's: their headers are damaged
    FETCHING --out of range--> ASKING_BOUNDS         the next records were deleted, or the leader's log is shorter
    ASKING_BOUNDS --leader's bounds--> FETCHING      restart the log at the leader's start, or truncate to its end
    any --fenced--> STOPPED                          a newer leader exists; wait for the controller's request

Invariant: an answer leads to at most one change, and the log is changed before the next request. An invalid answer (negative offsets,
bounds in the wrong order, at the wrong time) changes nothing and fails no assertion, because another broker sent it. `fetcher.py` has the
sessions and requests, `follower_log.py` changes the log.
"""

from __future__ import annotations

from enum import Enum

from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.base.types import NO_LEADER_EPOCH
from ottla.storage.epochs import LeaderEpochs


class FollowerState(Enum):
    """The request that a follower sends next: a fetch, a request for the leader's log start and log end, or none."""

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
    """Fetch records from `offset`. `last_fetched_epoch` is the epoch of the record before it, -1 if there is none."""

    offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


@immutable(kw_only=True)
class AskBounds:
    """Ask for the start and end of the leader's log (ListOffsets, earliest local and latest, as a replica)."""

    current_leader_epoch: int


class Wait:
    """Send no request: this state machine is stopped. In the next leader epoch the partition has a new one."""


class FollowerStep(Enum):
    """The change of the log that an answer leads to."""

    APPEND = "append the records of the answer"
    TRUNCATE = "truncate to the offset"
    RESTART = "delete all records and start at the offset"
    WAIT = "try again later"
    NOTHING = "leave the log unchanged"


@immutable
class Todo:
    """A change of the log, and its offset for TRUNCATE and RESTART."""

    step: FollowerStep
    offset: int = -1


APPEND = Todo(FollowerStep.APPEND)


class Follower:
    """The state machine of one partition in one leader epoch; a new epoch needs a new object."""

    __slots__ = ("leader_epoch", "leader_id", "state")

    def __init__(self, *, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.state = FollowerState.FETCHING

    def next_request(self, epochs: LeaderEpochs, log_end_offset: int) -> FetchAt | AskBounds | Wait:
        """Returns the next request for the current log."""
        if self.state is FollowerState.STOPPED:
            return Wait()
        if self.state is FollowerState.ASKING_BOUNDS:
            return AskBounds(current_leader_epoch=self.leader_epoch)
        last = epochs.epoch_at(log_end_offset - 1) if log_end_offset > 0 else NO_LEADER_EPOCH
        return FetchAt(offset=log_end_offset, current_leader_epoch=self.leader_epoch, last_fetched_epoch=last)

    def on_fetched(self, error: ErrorCode, diverging_epoch: tuple[int, int] | None, *, epochs: LeaderEpochs, log_end_offset: int) -> Todo:
        """Processes the answer to `FetchAt`; `diverging_epoch` is the leader's (epoch, end offset)."""
        if self.state is not FollowerState.FETCHING:
            return Todo(FollowerStep.WAIT)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            impossible = epochs.start_above(self.leader_epoch)
            if impossible is not None:
                return Todo(FollowerStep.TRUNCATE, impossible)
            self._move(FollowerState.ASKING_BOUNDS)
            return Todo(FollowerStep.NOTHING)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if diverging_epoch is not None and min(diverging_epoch) < 0:
            return Todo(FollowerStep.WAIT)
        if diverging_epoch is not None:
            return Todo(FollowerStep.TRUNCATE, divergence_point(epochs, log_end_offset, *diverging_epoch))
        return APPEND

    def on_leader_bounds(self, error: ErrorCode, *, start: int, end: int, log_end_offset: int) -> Todo:
        """Processes the answer to `AskBounds`."""
        if self.state is not FollowerState.ASKING_BOUNDS:
            return Todo(FollowerStep.WAIT)
        if error is not ErrorCode.NONE:
            return self._on_error(error)
        if not 0 <= start <= end:
            return Todo(FollowerStep.WAIT)
        self._move(FollowerState.FETCHING)
        if end < log_end_offset:
            return Todo(FollowerStep.TRUNCATE, end)
        if start > log_end_offset:
            return Todo(FollowerStep.RESTART, start)
        # The logs overlap now: the leader has appended records, or its start is still in this log.
        return Todo(FollowerStep.NOTHING)

    def _on_error(self, error: ErrorCode) -> Todo:
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._move(FollowerState.STOPPED)
            return Todo(FollowerStep.WAIT)
        return Todo(FollowerStep.WAIT)

    def _move(self, state: FollowerState) -> None:
        assert state in ALLOWED[self.state], f"a follower from {self.state} to {state}"
        self.state = state


def divergence_point(epochs: LeaderEpochs, log_end_offset: int, leader_epoch: int, leader_end_offset: int) -> int:
    """Returns the offset to truncate the follower's log to. `leader_epoch` is the largest epoch in the leader's log that is not above the
    follower's last epoch. In the leader's log this epoch ends at `leader_end_offset`.

    If the follower's log has this epoch, both logs are equal up to the smaller end. Otherwise the follower truncates to the end of its
    largest older epoch, and the next fetch asks again (KIP-279). If all epochs of the follower's log are newer, it truncates to the
    leader's end offset, or to the start of its own first epoch if that is smaller.
    """
    epoch, end_offset = epochs.end_offset_for(leader_epoch, log_end_offset)
    if epoch == leader_epoch:
        return min(end_offset, leader_end_offset, log_end_offset)
    if epoch < 0:
        return min(leader_end_offset, log_end_offset)
    return min(end_offset, log_end_offset)
