"""The failures that KIPs describe, step by step, on production nodes over ZooKeeper's model."""

from __future__ import annotations

from ottla.base.cluster_metadata import PartitionMetadata
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
