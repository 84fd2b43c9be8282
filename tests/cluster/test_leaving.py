"""A broker stops in a cluster of production nodes: other brokers lead before its listeners close, and its registration disappears from
ZooKeeper at once."""

from __future__ import annotations

import pytest

from ottla.metadata_store import znodes
from tests.cluster.nodes import Nodes, host_of


def listens(world: Nodes, broker_id: int) -> bool:
    return host_of(broker_id) in world.network.listening


@pytest.mark.parametrize("leaving", [1, 2])
def test_leadership_and_the_controllers_office_move_before_the_listeners_close(leaving: int) -> None:
    world = Nodes(3)
    assert world.controller_id == 1
    world.create("t", [leaving, 3], partitions=3)
    world.create("alone", [leaving])
    world.write("a", "b")
    world.until(lambda: world.replica(leaving).high_watermark == 2)
    node, closed, registered_at_closing = world.nodes[leaving], [], []
    stop_accepting = node.listeners.stop_accepting

    def stopping() -> None:
        registered_at_closing.append(znodes.broker_path(leaving) in world.model.tree.nodes())
        stop_accepting()

    node.listeners.stop_accepting = stopping  # type: ignore[method-assign]
    node.stop(closed.append)
    assert not node.is_ready
    world.until(lambda: znodes.broker_path(leaving) not in world.model.tree.nodes())
    world.until(lambda: all(world.replica(3, index=index).is_leading for index in range(3)), 20)  # broker 3 knows the leaders
    assert not any(world.replica(leaving, index=index).is_leading for index in range(3))
    world.until(lambda: closed)
    assert closed == [True] and registered_at_closing == [False] and not listens(world, leaving)
    world.nodes.pop(leaving)
    assert world.controller_id != leaving
    world.until(lambda: all(leaving not in other.metadata.brokers for other in world.nodes.values()))
    world.write("c")
    world.until(lambda: world.leader().high_watermark == 3)
    assert world.leader().leader_epoch == 1, "one election for each"


def test_the_last_broker_of_a_cluster_stops_at_once() -> None:
    world = Nodes(1)
    world.create("t", [1])
    closed: list[bool] = []
    began_ms = world.timers.clock.monotonic_ms()
    world.nodes[1].stop(closed.append)
    world.until(lambda: closed)
    assert closed == [True] and world.timers.clock.monotonic_ms() - began_ms < 100


def test_a_broker_that_left_does_not_register_again() -> None:
    world = Nodes(2)
    world.create("t", [2, 1])
    closed: list[bool] = []
    store = world.nodes[2].ports.store
    world.nodes[2].stop(closed.append)
    world.until(lambda: closed)
    store.expire()  # type: ignore[attr-defined]
    store.renew()  # type: ignore[attr-defined]
    world.settle()
    assert znodes.broker_path(2) not in world.model.tree.nodes()


def test_a_stopping_broker_that_registers_anew_has_lost_nothing() -> None:
    """KIP-966: the broker's replica is eligible before and after. The broker's session ends just before it stops, so it needs another one
    to announce that it leaves."""
    world = Nodes(3)
    world.create("t", [2, 3], min_insync_replicas="2")
    world.write("acknowledged")
    world.until(lambda: world.replica(2).high_watermark == 1)
    world.nodes[3].links.fetchers.close()
    world.write("on one alone")
    world.until(lambda: world.replica(2).isr == (2,), 120_000)
    closed: list[bool] = []
    store = world.nodes[3].ports.store
    store.expire()  # type: ignore[attr-defined]
    world.until(lambda: 3 not in world.nodes[1].metadata.brokers)
    world.nodes[3].stop(closed.append)
    store.renew()  # type: ignore[attr-defined]
    world.until(lambda: closed)
    world.nodes.pop(3)
    world.settle()
    partition = world.nodes[1].controller.state.partition("t", 0)
    assert partition is not None and (partition.isr, partition.eligible) == ((2,), (3,))
