"""Asks the share coordinator on another broker.

Which broker that is is decided here; the request itself is made by the port `PeerShareCoordinators` (`cluster/peer_share_states.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.sharing.commands import DoneResult, StateCommand, StateResult

NO_LEADER = -1


class PeerShareCoordinators(Protocol):
    """The share coordinator of one other broker."""

    def ask(self, broker_id: int, command: StateCommand, done: DoneResult) -> None:
        """Calls `done` once; with an error code when the broker could not be asked."""


class OtherShareCoordinators:
    """The share coordinators on other brokers. `leader_of` names the leader of a partition of `__share_group_state`."""

    def __init__(self, broker_id: int, leader_of: Callable[[int], int | None], peers: PeerShareCoordinators) -> None:
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._peers = peers

    def ask(self, shard: int, command: StateCommand, done: DoneResult) -> None:
        """Answers once; NOT_COORDINATOR if the shard is led by no other broker."""
        leader = self._leader_of(shard)
        if leader is None or leader in (NO_LEADER, self._broker_id):
            done(StateResult(ErrorCode.NOT_COORDINATOR))
        else:
            self._peers.ask(leader, command, done)
