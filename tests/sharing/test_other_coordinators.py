"""Which broker is asked for the state of a share partition, and in which cases no broker is asked."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.sharing.commands import DeleteState, StateResult
from ottla.sharing.persister import OtherShareCoordinators
from tests.fakes.peers import HeldPeerShareStates
from tests.sharing.state_world import KEY


@pytest.mark.parametrize("leader", [1, -1, None])
def test_a_shard_that_no_other_broker_leads(leader: int | None) -> None:
    peers, results = HeldPeerShareStates(), list[StateResult]()
    OtherShareCoordinators(1, lambda _shard: leader, peers).ask(0, DeleteState(KEY), results.append)
    assert results == [StateResult(ErrorCode.NOT_COORDINATOR)] and not peers.asked


def test_the_leader_is_asked() -> None:
    peers, results = HeldPeerShareStates(), list[StateResult]()
    OtherShareCoordinators(1, {4: 2}.get, peers).ask(4, DeleteState(KEY), results.append)
    [(broker_id, command, done)] = peers.asked
    assert (broker_id, command, results) == (2, DeleteState(KEY), [])
    done(StateResult(ErrorCode.NONE))
    assert results == [StateResult(ErrorCode.NONE)]
