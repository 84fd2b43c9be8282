"""Asks the share coordinator on another broker.

This module chooses the broker; the port `PeerShareCoordinators` sends the request (`cluster/peer_share_states.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import ErrorCode
from ottla.sharing.commands import DoneResult, StateCommand, StateResult

NO_LEADER = -1


class PeerShareCoordinators(Protocol):
    """The share coordinators of other brokers."""

    def ask(self, broker_id: int, command: StateCommand, done: DoneResult) -> None:
        """Calls `done` once, with an error code if the broker could not be asked."""


class OtherShareCoordinators:
    """The share coordinators on other brokers. `leader_of` returns the leader of a partition of `__share_group_state`."""

    def __init__(self, broker_id: int, leader_of: Callable[[int], int | None], peers: PeerShareCoordinators) -> None:
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._peers = peers

    def ask(self, shard: int, command: StateCommand, done: DoneResult) -> None:
        """Calls `done` once, with NOT_COORDINATOR if no other broker leads the shard."""
        leader = self._leader_of(shard)
        if leader is None or leader in (NO_LEADER, self._broker_id):
            done(StateResult(ErrorCode.NOT_COORDINATOR))
        else:
            self._peers.ask(leader, command, done)
