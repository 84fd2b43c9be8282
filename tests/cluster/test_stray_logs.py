"""A broker that was away removes the logs whose topics were deleted, or whose partitions were moved, meanwhile (KIP-516)."""

from __future__ import annotations

import pytest

from ottla.base.ports import Set
from ottla.controller.api import Reassignment, TopicResult
from tests.cluster.nodes import DIRECTORY, Nodes


def logs(world: Nodes, broker_id: int) -> list[str]:
    return sorted(name for name in world.disks[broker_id].listdir(DIRECTORY) if name.startswith(("t-", "kept-")))


def delete(world: Nodes, name: str) -> None:
    answers: list[TopicResult] = []
    world.nodes[world.controller_id].controller.delete_topics([name], answers.extend)
    world.until(lambda: answers)


def test_the_name_is_free_at_once_and_the_log_of_the_old_topic_is_never_served() -> None:
    """I41."""
    world = Nodes(3)
    world.create("t", [3, 1])
    world.create("kept", [3, 1])
    world.write("old")
    world.write("stays", topic="kept")
    world.until(lambda: world.replica(1).log.log_end_offset == 1 == world.replica(1, "kept").log.log_end_offset)
    world.kill_process(3).expire()
    world.settle()
    delete(world, "t")
    world.create("t", [1, 2])
    world.write("new", "newer")
    node = world.start(3)
    world.until(lambda: not any(name.startswith("t-0") and not name.endswith("delete") for name in logs(world, 3)))
    assert node.partitions.get("t", 0) is None
    answers: list[object] = []
    moved = [Reassignment(topic="t", partition=0, replicas=[3, 1])]
    world.nodes[world.controller_id].controller.alter_reassignments(moved, answers.append)
    world.until(lambda: node.partitions.get("t", 0) is not None and world.replica(3).log.log_end_offset == 2)
    assert world.replica(3).topic_id == world.replica(1).topic_id
    world.until(lambda: 3 in world.replica(1, "kept").isr)
    assert world.replica(3, "kept").log.log_end_offset == 1


def test_a_log_that_no_topic_claims_is_kept_when_a_topic_cannot_be_read() -> None:
    world = Nodes(3)
    world.create("t", [3, 1])
    world.kill_process(3).expire()
    world.settle()
    world.kill_process(1).expire()
    world.nodes[2].ports.store.put("/brokers/topics/damaged", b"garbage")  # type: ignore[attr-defined]
    world.settle()
    delete(world, "t")
    world.kill_process(2).expire()
    world.start(2)
    world.start(3)
    world.settle()
    assert logs(world, 3) == ["t-0"] and not world.nodes[2].controller.state.is_whole


def test_a_damaged_state_stays_as_it_is_and_its_logs_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """No leader is elected, though unclean elections are allowed. All brokers together log at most one line, and no broker is sent a state
    that it would refuse."""
    world = Nodes(3)
    world.create("t", [3, 1], unclean_leader_election_enable="true")
    world.create("kept", [3, 1])
    world.write("stays")
    world.until(lambda: world.replica(1).log.log_end_offset == 1)
    for broker_id in (1, 2, 3):
        world.kill_process(broker_id).expire()
    world.model.session().multi([Set("/brokers/topics/t/partitions/0/state", b"garbage", -1)], lambda outcome: None)
    caplog.clear()
    for broker_id in (1, 2, 3):
        world.start(broker_id)
    world.until(lambda: len(world.replica(1, "kept").isr) == 2)
    world.kill_process(3).expire()
    world.start(3)
    world.until(lambda: len(world.leader("kept").isr) == 2)
    assert world.model.tree.nodes()["/brokers/topics/t/partitions/0/state"].data == b"garbage"
    assert [logs(world, broker_id) for broker_id in (1, 3)] == [["kept-0", "t-0"]] * 2
    lines = {line for line in caplog.messages if "/brokers/topics/t/partitions/0/state" in line or " t-0 " in line}
    assert len(lines) == 1 and "/brokers/topics/t/partitions/0/state in the metadata store is damaged" in lines.pop()


def test_a_replica_that_was_moved_away_goes_with_its_log() -> None:
    world = Nodes(3)
    world.create("t", [1, 3])
    world.write("a")
    world.until(lambda: world.replica(3).log.log_end_offset == 1)
    world.kill_process(3).expire()
    world.settle()
    answers: list[object] = []
    world.nodes[1].controller.alter_reassignments([Reassignment(topic="t", partition=0, replicas=[1, 2])], answers.append)
    world.until(lambda: world.leader().state.replicas == (1, 2))
    node = world.start(3)
    world.until(lambda: all(name.endswith("delete") for name in logs(world, 3)))
    assert node.partitions.get("t", 0) is None and world.replica(2).log.log_end_offset == 1
