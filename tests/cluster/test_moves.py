"""Moves of replicas while messages of the controller are late, on production nodes over ZooKeeper's model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.controller.api import PartitionResult, Reassignment
from tests.cluster.nodes import Nodes, content


def move(world: Nodes, *replicas: int) -> None:
    answers: list[PartitionResult] = []
    controller = world.nodes[world.controller_id].controller
    controller.alter_reassignments([Reassignment(topic="t", partition=0, replicas=list(replicas))], answers.extend)
    world.until(lambda: answers)
    assert not answers[0].error, answers


def state_of(world: Nodes) -> Any:
    return world.nodes[world.controller_id].controller.state.partition("t", 0)


def test_a_replica_that_was_removed_and_comes_back_is_in_sync_only_after_it_has_learned_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages to broker 3 are late, and it goes on fetching. The StopReplica of its removal deletes its log when it comes at last, so
    it must not be in sync before, by what it has from its former part."""
    world = Nodes(4, "controlled.shutdown.enable=false")
    world.create("t", [2, 3])
    world.write("a", "b")
    world.until(lambda: world.replica(3).high_watermark == 2)
    late: list[Callable[[], None]] = []
    control: Any = world.nodes[3].broker.control
    take = control.take
    monkeypatch.setattr(control, "take", lambda *arguments: late.append(lambda: take(*arguments)))

    move(world, 2, 4)
    world.until(lambda: state_of(world).replicas == (2, 4))
    world.write("c")
    move(world, 2, 3)
    world.settle(3_000)
    assert 3 not in state_of(world).isr, "its log is about to be deleted"

    monkeypatch.setattr(control, "take", take)
    for message in late:
        message()
    world.until(lambda: set(state_of(world).isr) == {2, 3} and state_of(world).replicas == (2, 3))
    world.until(lambda: world.replica(3).high_watermark == 3)
    assert content(world.replica(3)) == content(world.replica(2))
