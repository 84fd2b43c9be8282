"""A log directory of one broker fails: leadership moves, and the other brokers show its replicas as offline, also after a change of
controllers."""

from __future__ import annotations

from dataclasses import replace

from ottla.base.control_messages import ReplicaRole
from ottla.base.errors import DiskError
from ottla.controller.api import NewTopic, TopicResult
from ottla.replication.partition import Partition
from tests.cluster.nodes import DIRECTORY, Nodes


def offline(world: Nodes, broker_id: int) -> tuple[int, ...]:
    partition = world.nodes[broker_id].metadata.partition("t", 0)
    assert partition is not None
    return partition.offline_replicas


def test_leadership_moves_and_the_replicas_are_offline_for_every_broker() -> None:
    world = Nodes(3)
    world.create("t", [3, 2])
    world.write("a")
    world.until(lambda: world.replica(2).log.log_end_offset == 1)
    world.nodes[3].storage_failed(DiskError("input/output error", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    world.until(lambda: world.replica(2).is_leading)
    assert world.replica(2).isr == (2,)
    world.until(lambda: [offline(world, broker_id) for broker_id in (1, 2, 3)] == [(3,)] * 3)
    world.kill(1)
    world.until(lambda: any(node.controller.is_active for node in world.nodes.values()))
    world.until(lambda: 3 in world.nodes[world.controller_id].controller.state.failed)
    world.settle()
    assert offline(world, 2) == (3,) and world.replica(2).is_leading
    assert not world.model.tree.children("/log_dir_event_notification")


def test_a_directory_that_works_again_brings_its_replicas_back() -> None:
    world = Nodes(3)
    world.create("t", [3, 2])
    world.create("u", [2, 3])
    node = world.nodes[3]
    world.write("a")
    world.until(lambda: world.replica(2).log.log_end_offset == 1)
    node.storage_failed(DiskError("no space left", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    world.until(lambda: world.replica(2).is_leading and offline(world, 1) == (3,))
    world.write("b")
    node.replicas.reopen(node.directories[0])
    world.until(lambda: 3 in world.replica(2).isr and 3 in world.replica(2, "u").isr)
    world.until(lambda: [offline(world, broker_id) for broker_id in (1, 2, 3)] == [()] * 3)
    assert world.replica(3).log.log_end_offset == 2
    assert world.nodes[world.controller_id].controller.state.failed == {}


def test_reports_that_cannot_be_written_are_made_later_and_say_how_it_is_then() -> None:
    world = Nodes(3)
    world.create("t", [3, 2])
    node = world.nodes[3]
    node.ports.store.disconnect()  # type: ignore[attr-defined]
    node.storage_failed(DiskError("no space left", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    world.settle()
    assert not world.replica(2).is_leading
    node.ports.store.reconnect()  # type: ignore[attr-defined]
    world.until(lambda: world.replica(2).is_leading)
    node.replicas.reopen(node.directories[0])
    world.until(lambda: 3 in world.replica(2).isr)


def test_i15_logs_that_were_opened_again_lead_in_no_epoch_that_began_before() -> None:
    """The logs may have lost their tails, and the controller does not know of the failure yet, because the broker is not connected to the
    metadata store. Neither the broker's former role makes it lead again, nor a newer state with the same leader epoch."""
    world = Nodes(3)
    world.create("t", [3, 2])
    world.write("a")
    world.until(lambda: world.replica(2).log.log_end_offset == 1)
    node, epoch = world.nodes[3], world.replica(3).leader_epoch
    node.ports.store.disconnect()  # type: ignore[attr-defined]
    node.storage_failed(DiskError("input/output error", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    node.replicas.reopen(node.directories[0])
    assert world.replica(3).is_online and not world.replica(3).is_leading and world.replica(3).leader_epoch == epoch
    topic = node.metadata.topic("t")
    assert topic is not None
    newer = replace(topic.partitions[0], isr=(3,), partition_epoch=topic.partitions[0].partition_epoch + 1)
    node.replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=newer)])
    assert not world.replica(3).is_leading and world.replica(3).leader_epoch == epoch == newer.leader_epoch
    node.ports.store.reconnect()  # type: ignore[attr-defined]
    world.until(lambda: world.replica(2).is_leading and len(world.replica(2).isr) == 2)
    assert world.replica(2).leader_epoch > epoch and world.replica(3).log.log_end_offset == 1


def test_i15_it_is_the_same_for_the_last_broker_of_a_cluster() -> None:
    """The other brokers may come back, and their logs may be longer."""
    world = Nodes(3)
    world.create("t", [3, 2])
    world.write("a")
    world.until(lambda: world.replica(2).log.log_end_offset == 1)
    for broker_id in (1, 2):
        world.kill(broker_id)
    node = world.nodes[3]
    world.until(lambda: [*node.metadata.brokers] == [3] and world.replica(3).isr == (3,))
    epoch = world.replica(3).leader_epoch
    node.ports.store.disconnect()  # type: ignore[attr-defined]
    node.storage_failed(DiskError("input/output error", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    node.replicas.reopen(node.directories[0])
    assert world.replica(3).is_online and not world.replica(3).is_leading
    node.ports.store.reconnect()  # type: ignore[attr-defined]
    world.until(lambda: world.replica(3).is_leading)
    assert world.replica(3).leader_epoch > epoch and world.replica(3).log.log_end_offset == 1


def test_a_directory_that_heals_before_the_topic_is_in_the_metadata_is_reported_with_it() -> None:
    """The broker has got the role of the replica, and not yet the metadata with the topic's name and id. The replica leads again, in a
    later epoch."""
    world = Nodes(3)
    answers: list[TopicResult] = []
    controller = next(node.controller for node in world.nodes.values() if node.controller.is_active)
    controller.create_topics([NewTopic(name="t", assignments={0: [3, 2]})], False, answers.extend)
    node = world.nodes[3]

    def replicas() -> list[Partition | None]:
        return [node.partitions.get("t", 0) for node in world.nodes.values()]

    world.until(lambda: (found := node.partitions.get("t", 0)) is not None and found.is_leading)
    epoch = world.replica(3).leader_epoch
    assert node.metadata.topic("t") is None
    node.storage_failed(DiskError("input/output error", f"{DIRECTORY}/t-0/00000000000000000000.log"))
    node.replicas.reopen(node.directories[0])
    world.until(lambda: node.metadata.topic("t") is not None)
    world.until(lambda: any(found is not None and found.is_leading and len(found.isr) == 2 for found in replicas()))
    assert world.leader().leader_epoch > epoch
