"""Replaces the share coordinators on a broker that has none: every call is refused."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateFound, StateWritten

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NoShareStates:
    """A `Persister` without share coordinators."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: StateWritten) -> None:
        done(UNAVAILABLE)

    def read(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        found(UNAVAILABLE, None)

    def summary(self, key: SharePartitionKey, leader_epoch: int, found: StateFound) -> None:
        found(UNAVAILABLE, None)

    def write(self, key: SharePartitionKey, state: ShareState, done: StateWritten) -> None:
        done(UNAVAILABLE)

    def delete(self, key: SharePartitionKey, done: StateWritten) -> None:
        done(UNAVAILABLE)


NO_SHARE_STATES = NoShareStates()
