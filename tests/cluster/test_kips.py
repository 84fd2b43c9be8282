"""The failures that KIPs describe, step by step, on production nodes over ZooKeeper's model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.cluster.nodes import Nodes, content


def state(world: Nodes) -> PartitionMetadata:
    partition = world.nodes[world.controller_id].controller.state.partition("t", 0)
    assert partition is not None
    return partition


def has_a_leader(world: Nodes) -> bool:
    return any(node.controller.is_active for node in world.nodes.values()) and state(world).leader >= 0


def test_kip_966_the_last_replica_standing_loses_its_tail_and_nothing_acknowledged_is_lost() -> None:
    """min.insync 2. B stops fetching, so the in-sync set shrinks to A alone; A loses power, and with it what was not synced. B leads, with
    all that was acknowledged; A comes back, and is cut to what B has."""
    world = Nodes(3)
    world.create("t", [2, 3], min_insync_replicas="2")
    world.write("acknowledged")
    world.until(lambda: world.replica(2).high_watermark == 1)
    world.nodes[3].links.fetchers.close()
    world.write("on A alone")
    world.until(lambda: world.replica(2).isr == (2,), 120_000)
    assert state(world).eligible == (3,)
    assert world.replica(2).high_watermark == 1 and world.replica(2).log.log_end_offset == 2
    world.kill(2)
    world.until(lambda: world.replica(3).is_leading)
    assert state(world).isr == (3,) and world.replica(3).log.log_end_offset == 1
    kept = content(world.replica(3))
    world.start(2)
    world.until(lambda: 2 in world.replica(3).isr)
    assert content(world.replica(2)) == content(world.replica(3)) == kept
    assert state(world).eligible == ()
    world.write("again")
    world.until(lambda: world.replica(3).high_watermark == 2)


def test_kip_966_a_last_replica_without_a_proof_waits_for_the_eligible_one_that_is_away() -> None:
    """A comes back first, having lost power; it must not lead, and when B is back, B does."""
    world = Nodes(3)
    world.create("t", [2, 3], min_insync_replicas="2")
    world.write("acknowledged")
    world.until(lambda: world.replica(2).high_watermark == 1)
    world.kill_process(3).expire()
    world.until(lambda: state(world).eligible == (3,))
    world.kill(2)
    world.until(lambda: state(world).leader < 0)
    world.start(2)
    world.until(lambda: 2 in world.nodes[1].metadata.brokers)
    world.settle(2_000)
    assert state(world).leader < 0 and state(world).isr == (3,), "the eligible one is waited for"
    world.start(3)
    world.until(lambda: has_a_leader(world))
    assert world.replica(3).is_leading and world.replica(3).log.log_end_offset == 1
    world.until(lambda: 2 in world.replica(3).isr)
    assert content(world.replica(2)) == content(world.replica(3))


def test_kip_903_a_broker_that_restarts_unnoticed_is_in_no_in_sync_set() -> None:
    """Its session is replaced within one read of the controller, so it never seems to have been away."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("a")
    world.until(lambda: world.replica(2).high_watermark == 1)
    before = state(world)
    world.kill_process(3).expire()
    world.disks[3].crash(world.nodes[1].ports.random)  # type: ignore[arg-type]
    world.start(3)
    world.until(lambda: state(world).partition_epoch >= before.partition_epoch + 2 and 3 in state(world).isr)
    assert state(world).leader_epoch == before.leader_epoch, "its leader stayed"
    assert content(world.replica(3)) == content(world.replica(2))


def without_power(world: Nodes, *replaced: int) -> None:
    """All machines lose their power at once, after everything was written back; these come back with a new disk."""
    for broker_id in list(world.nodes):
        world.disks[broker_id].write_back()
        world.kill(broker_id, keeps_some=False)
    for broker_id in replaced:
        world.replace_disk(broker_id)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
@pytest.mark.parametrize("is_together", [False, True])
def test_kip_966_after_a_power_failure_of_all_a_new_disk_leads_nothing_that_others_hold(order: Sequence[int], is_together: bool) -> None:
    """Nothing proves any log, and each of them has all; the last leader's disk is replaced."""
    world = Nodes(3)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("acknowledged")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
    kept = content(world.replica(2))
    without_power(world, 2)
    for broker_id in order:
        world.start(broker_id, is_awaited=False)
        world.settle(0 if is_together else 2_000)
    world.until(lambda: has_a_leader(world) and state(world).isr and len(state(world).isr) == 3)
    assert [content(world.replica(broker_id)) for broker_id in (1, 2, 3)] == [kept] * 3


def test_kip_966_the_last_in_sync_with_a_new_disk_leads_no_others_that_hold_more_than_nothing() -> None:
    """min.insync 1. C was left behind, so A was alone in sync; A's disk is replaced. What C has is not given up for an empty log; the
    partition waits until an operator lets C lead."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("on both")
    world.until(lambda: world.replica(2).high_watermark == 1)
    kept = content(world.replica(3))
    world.disks[3].write_back()
    world.kill(3)
    world.until(lambda: state(world).isr == (2,))
    world.write("on A alone")
    world.kill(2)
    world.replace_disk(2)
    world.start(2)
    world.start(3)
    world.until(lambda: all(broker_id in world.nodes[1].metadata.brokers for broker_id in (2, 3)))
    world.settle(2_000)
    assert (state(world).leader, state(world).isr, state(world).emptied) == (-1, (), (2,))
    answer = world.ask(3, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    assert (answer.topics[0].partitions[0].leader_id, answer.topics[0].partitions[0].isr_nodes) == (-1, [])
    unclean = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    elected = world.ask(world.controller_id, unclean)
    assert elected.error_code == ErrorCode.NONE
    world.until(lambda: has_a_leader(world) and len(state(world).isr) == 2)
    assert world.replica(3).is_leading and content(world.replica(2)) == content(world.replica(3)) == kept


def test_kip_966_a_cluster_whose_disks_are_all_new_begins_anew() -> None:
    world = Nodes(3)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("gone")
    world.until(lambda: world.replica(2).high_watermark == 1)
    without_power(world, 1, 2, 3)
    for broker_id in (1, 2, 3):
        world.start(broker_id)
        world.settle(2_000)
    world.until(lambda: has_a_leader(world) and len(state(world).isr) == 3)
    assert content(world.leader()) == b""
    world.write("again")
    world.until(lambda: world.leader().high_watermark == 1)
