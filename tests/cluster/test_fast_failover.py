"""Fast failover on production nodes: other brokers notice a killed process by its closed connections, long before its session with
ZooKeeper ends."""

from __future__ import annotations

import pytest

from ottla.base.ports import Delete, Set, StoreResult
from ottla.metadata_store import znodes
from tests.cluster.nodes import Nodes, host_of

SOON_MS = 300


def epochs(world: Nodes) -> tuple[dict[int, int], dict[int, int]]:
    return znodes.read_broker_epochs(world.model.tree.nodes()[znodes.BROKER_EPOCHS].data)


def test_a_killed_leader_is_replaced_while_its_registration_still_stands() -> None:
    world = Nodes(3)
    world.create("t", [3, 2, 1])
    world.write("a")
    world.until(lambda: world.replica(3).high_watermark == 1)
    epoch = world.nodes[3].member.broker_epoch()
    store = world.kill_process(3)
    world.until(lambda: world.replica(2).is_leading, SOON_MS)
    assert znodes.broker_path(3) in world.model.tree.nodes() and epochs(world)[1] == {3: epoch}
    assert world.replica(2).isr == (2, 1) and world.replica(2).leader_epoch == 1
    world.write("b")
    world.until(lambda: world.replica(2).high_watermark == 2, SOON_MS)
    store.expire()
    world.settle()
    world.start(3)
    world.until(lambda: 3 in world.replica(2).isr)
    assert epochs(world)[1] == {} and world.replica(2).leader_epoch == 1


def test_a_killed_controller_is_replaced_by_one_write_and_what_it_led_as_well() -> None:
    world = Nodes(3)
    world.create("t", [1, 2, 3])
    epoch = world.nodes[1].member.broker_epoch()
    store = world.kill_process(1)
    world.until(lambda: any(node.controller.is_active for node in world.nodes.values()), SOON_MS)
    assert world.nodes[world.controller_id].controller.state.controller_epoch == 2
    assert world.model.tree.nodes()[znodes.CONTROLLER].ephemeral_owner != store.session_id()
    world.until(lambda: world.replica(2).is_leading, SOON_MS)
    assert epochs(world)[1] == {1: epoch}
    store.expire()
    world.settle()
    assert world.nodes[world.controller_id].controller.state.controller_epoch == 2, "the office is not the dead one's any more"


def test_a_controller_that_is_killed_while_the_store_is_away_is_replaced_when_it_is_back() -> None:
    """The controller's session is still alive then. Only its closed connections, noticed meanwhile, show that it is dead."""
    world = Nodes(3)
    world.create("t", [1, 2, 3])
    others = [world.nodes[broker_id] for broker_id in (2, 3)]
    for node in others:
        node.ports.store.disconnect()  # type: ignore[attr-defined]
    world.kill_process(1)
    world.settle(2_000)
    assert not any(node.controller.is_active for node in others) and not world.replica(2).is_leading
    for node in others:
        node.ports.store.reconnect()  # type: ignore[attr-defined]
    world.until(lambda: any(node.controller.is_active for node in others), SOON_MS)
    world.until(lambda: world.replica(2).is_leading, SOON_MS)


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_claim_whose_answer_is_lost_is_decided_again(is_applied: bool) -> None:
    world = Nodes(3)
    world.create("t", [1, 2, 3])
    others = [world.nodes[broker_id] for broker_id in (2, 3)]
    for node in others:
        node.ports.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)  # type: ignore[attr-defined]
    world.kill_process(1)
    world.until(lambda: any(node.controller.is_active for node in others), SOON_MS)
    assert sum(node.controller.is_active for node in others) == 1
    world.until(lambda: world.replica(2).is_leading, SOON_MS)


def test_a_broker_that_cannot_be_marked_is_replaced_when_its_session_is_over() -> None:
    """The node of the epochs is damaged, and nothing overwrites it. Without a mark there, a broker that lives after all would not learn
    that others lead."""
    world = Nodes(3)
    world.create("t", [3, 2, 1])
    path = znodes.BROKER_EPOCHS
    world.model.session().multi([Set(path, b"garbage")], lambda outcome: None)
    store = world.kill_process(3)
    world.settle(5_000)
    assert not world.replica(2).is_leading
    store.expire()
    world.until(lambda: world.replica(2).is_leading, SOON_MS)
    killed = world.kill_process(1)
    killed.expire()
    world.until(lambda: world.nodes[2].controller.is_active)
    world.start(1)
    world.until(lambda: 1 in world.replica(2).isr)
    assert world.model.tree.nodes()[path].data == b"garbage" and world.replica(2).is_leading
    world.model.session().multi([Delete(path)], lambda outcome: None)
    world.model.session().multi([Delete(znodes.CONTROLLER)], lambda outcome: None)
    world.until(lambda: path in world.model.tree.nodes() and sorted(epochs(world)[0]) == [1, 2])


def test_the_mark_outlives_the_controller_that_made_it() -> None:
    world = Nodes(4)
    world.create("t", [4, 3])
    world.kill_process(4)
    world.until(lambda: world.replica(3).is_leading, SOON_MS)
    world.kill_process(1)
    world.until(lambda: any(node.controller.is_active for node in world.nodes.values()), SOON_MS)
    state = world.nodes[world.controller_id].controller.state
    world.until(lambda: sorted(world.nodes[world.controller_id].controller.state.brokers) == [2, 3], SOON_MS)
    assert sorted(state.dead) == [1, 4] and world.replica(3).is_leading


def test_a_broker_that_lives_though_it_seems_gone_registers_anew() -> None:
    """The broker's port is closed and its connections are reset, for example because a proxy in front of it has failed."""
    world = Nodes(3)
    world.create("t", [3, 2])
    node = world.nodes[3]
    epoch = node.member.broker_epoch()
    listening = world.network.listening.pop(host_of(3))
    world.network.end_of_process(world.lives[3])
    world.until(lambda: world.replica(2).is_leading, SOON_MS)
    world.network.listening[host_of(3)] = listening
    world.until(lambda: node.member.broker_epoch() > epoch)
    world.until(lambda: 3 in world.replica(2).isr)
    assert not world.replica(3).is_leading and sorted(world.nodes[1].controller.state.brokers) == [1, 2, 3]
    assert epochs(world)[1] == {}


def test_connections_that_end_alone_prove_nothing() -> None:
    world = Nodes(3)
    world.create("t", [3, 2])
    for broker_id in (1, 2, 3):
        world.network.end_of_process(world.lives[broker_id])
    world.settle(2_000)
    assert world.controller_id == 1 and world.replica(3).is_leading and world.replica(3).leader_epoch == 0
    world.kill_process(3)
    world.until(lambda: world.replica(2).is_leading, SOON_MS)


def test_a_host_that_does_not_answer_is_waited_for_until_its_session_ends() -> None:
    world = Nodes(3)
    world.create("t", [3, 2])
    node = world.nodes.pop(3)
    world.lives.pop(3).is_over = True  # no connection is closed, nothing answers
    world.settle(2_000)
    assert not world.replica(2).is_leading
    node.ports.store.expire()  # type: ignore[attr-defined]
    world.until(lambda: world.replica(2).is_leading, SOON_MS)
