"""Disks that change, as docs/cluster.md describes them: an old disk that is put back, and an empty one among several log directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.base.cluster_metadata import Renewal
from ottla.base.errors import ErrorCode
from ottla.base.ports import MetadataStore, Operation, Outcome, Set, StoreResult
from ottla.metadata_store import znodes
from ottla.storage.generations import GENERATIONS_FILE
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.cluster.nodes import Nodes, content
from tests.cluster.test_kips import has_a_leader, state
from tests.fakes.disk import MemDisk
from tests.fakes.memory_store import MemoryStore

TWO = ("/data-a", "/data-b")
UNCLEAN = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])


def take_out(world: Nodes, broker_id: int) -> MemDisk:
    """Stops the computer of a broker when all data is on its disk, and gives it an empty disk. Returns the old disk."""
    stop(world, broker_id)
    old = world.disks[broker_id]
    world.replace_disk(broker_id)
    return old


def stop(world: Nodes, broker_id: int) -> None:
    world.disks[broker_id].write_back()
    world.kill(broker_id, keeps_some=False)


def wait_for_all(world: Nodes) -> None:
    world.until(lambda: has_a_leader(world) and sorted(state(world).isr) == sorted(state(world).replicas))


def test_what_is_on_an_old_disk_comes_back_when_its_broker_is_elected_before_the_others_start(caplog: pytest.LogCaptureFixture) -> None:
    """min.insync 1. Broker 2 was alone in sync, and its disk was replaced. The partition waits, and the records on the old disk are
    wanted."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("on both")
    world.until(lambda: world.replica(3).high_watermark == 1)
    stop(world, 3)
    world.until(lambda: state(world).isr == (2,))
    world.write("on 2 alone")
    kept = content(world.replica(2))
    old = take_out(world, 2)
    for broker_id in (2, 3):
        world.start(broker_id)
    world.settle(2_000)
    assert (state(world).leader, state(world).isr) == (-1, ())
    assert world.replica(3).leader_epoch == state(world).leader_epoch, "its replicas have learned of it"
    for broker_id in (2, 3):
        stop(world, broker_id)
    world.disks[2] = old
    world.start(2)
    world.settle(2_000)
    assert state(world).leader == -1, "it is not elected by itself: another replica may hold something"
    assert world.ask(world.controller_id, UNCLEAN).error_code == ErrorCode.NONE
    world.until(lambda: state(world).leader == 2)
    world.start(3)
    wait_for_all(world)
    assert world.replica(2).is_leading and content(world.replica(2)) == content(world.replica(3)) == kept
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_old_disk_that_is_put_back_later_is_one_that_the_broker_did_not_have() -> None:
    """Broker 2 went on with a new disk, was the last in sync, and comes back with its old disk. So the eligible replica leads."""
    world = Nodes(3)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("on all")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
    old = take_out(world, 2)
    world.start(2)
    wait_for_all(world)
    assert world.ask(world.controller_id, preferred()).error_code == ErrorCode.NONE
    world.until(lambda: world.replica(2).is_leading)
    world.write("after the change")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 2 for broker_id in (1, 2, 3)))
    kept = content(world.replica(1))
    stop(world, 3)
    world.until(lambda: 3 not in state(world).isr)
    stop(world, 1)
    world.until(lambda: has_a_leader(world) and state(world).isr == (2,))
    stop(world, 2)
    world.disks[2] = old
    world.start(2)
    world.settle(2_000)
    assert state(world).leader == -1
    for broker_id in (1, 3):
        world.start(broker_id)
    wait_for_all(world)
    assert not world.replica(2).is_leading
    assert [content(world.replica(broker_id)) for broker_id in (1, 2, 3)] == [kept] * 3


def test_an_older_copy_of_the_same_disk_leads_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The copy was made after a clean stop, so it says that its logs are whole. Its broker starts first, and no follower has a high
    watermark above the end of the copy's log."""
    world = Nodes(3)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("on all")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
    closed: list[bool] = []
    world.nodes[2].stop(closed.append)
    world.until(lambda: closed == [True])
    stop(world, 2)
    copy = world.disks[2].copy_of("/data")
    world.start(2)
    wait_for_all(world)
    assert world.ask(world.controller_id, preferred()).error_code == ErrorCode.NONE
    world.until(lambda: world.replica(2).is_leading)
    wait_for_all(world)
    world.write("after the copy")
    world.until(lambda: world.replica(2).high_watermark == 2)
    assert [world.replica(broker_id).high_watermark for broker_id in (1, 3)] == [1, 1]
    kept = content(world.replica(2))
    for broker_id in (1, 3, 2):
        stop(world, broker_id)
    assert world.disks[2].put_back("/data", copy)
    for broker_id in (2, 1, 3):
        world.start(broker_id, is_awaited=False)
        world.settle(2_000)
    wait_for_all(world)
    assert [content(world.replica(broker_id)) for broker_id in (1, 2, 3)] == [kept] * 3
    assert any("broker 2 has an older copy of its log directory /data" in record.getMessage() for record in caplog.records)


RENEWED_MS = 10_000
OFTEN = f"log.flush.offset.checkpoint.interval.ms={RENEWED_MS}"


def test_a_hot_copy_from_before_the_last_renewals_leads_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The copy was made while its broker ran, and is put back before the next start. No follower has a high watermark above the end of the
    copy's log."""
    world = Nodes(3, OFTEN)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("on all")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
    world.settle(RENEWED_MS)
    world.disks[2].write_back()
    copy = world.disks[2].copy_of("/data")
    world.settle(2 * RENEWED_MS)
    world.write("after the copy")
    world.until(lambda: world.replica(2).high_watermark == 2)
    assert [world.replica(broker_id).high_watermark for broker_id in (1, 3)] == [1, 1]
    kept = content(world.replica(2))
    for broker_id in (1, 3, 2):
        stop(world, broker_id)
    assert world.disks[2].put_back("/data", copy)
    for broker_id in (2, 1, 3):
        world.start(broker_id, is_awaited=False)
        world.settle(2_000)
    wait_for_all(world)
    assert [content(world.replica(broker_id)) for broker_id in (1, 2, 3)] == [kept] * 3
    assert [line for line in messages(caplog) if "broker 2 has an older copy of its log directory /data" in line]


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_kill_within_a_renewal_makes_no_disk_an_older_copy(caplog: pytest.LogCaptureFixture, is_stored: bool) -> None:
    """The metadata store has the same renewal number as the disk, or the number before it."""
    world = Nodes(3, OFTEN)
    path = f"/data/{GENERATIONS_FILE}"

    def numbers() -> tuple[int, int]:
        node = world.model.tree.get(znodes.renewals_path(2))
        (stored,) = znodes.read_renewals(node.data).values() if node is not None else [Renewal("", 0)]
        return int(world.disks[2].durable_file(path).split()[-2].rpartition(b":")[2]), stored.number

    world.settle(RENEWED_MS + 1_000)
    assert numbers() == (1, 1)
    if not is_stored:
        refuse(world.nodes[2].ports.store)
    world.settle(RENEWED_MS)
    assert numbers() == (2, 2 if is_stored else 1)
    for broker_id in (1, 2, 3):
        stop(world, broker_id)
    for broker_id in (2, 1, 3):
        world.start(broker_id, is_awaited=False)
    world.until(lambda: all(node.is_ready for node in world.nodes.values()))
    world.settle(RENEWED_MS + 1_000)
    assert numbers() == (1, 1), "of the next generation"
    assert not [line for line in messages(caplog) if "older copy" in line]


@pytest.mark.parametrize("data", [b"garbage", b'{"directories":{"/data":7}}', b'{"directories":{"/data":{"generation":"x","number":"x"}}}'])
def test_a_damaged_renewal_in_the_store_is_replaced(caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    world, path = Nodes(2, OFTEN), znodes.renewals_path(2)
    world.settle(RENEWED_MS + 1_000)
    world.model.session().multi([Set(path, data, -1)], lambda outcome: None)
    stop(world, 2)
    world.start(2)
    assert [line for line in messages(caplog) if f"{path} in the metadata store cannot be used" in line]
    assert not [line for line in messages(caplog) if "older copy" in line]
    world.settle(RENEWED_MS + 1_000)
    node = world.model.tree.get(path)
    assert node is not None and [found.number for found in znodes.read_renewals(node.data).values()] == [1]


def refuse(store: MetadataStore) -> None:
    """Makes every further write of a renewal to the metadata store end with an unknown outcome."""
    assert isinstance(store, MemoryStore)
    multi = store.multi

    def without_renewals(operations: Sequence[Operation], done: Callable[[Outcome], object]) -> None:
        if any(operation.path.startswith(f"{znodes.RENEWALS}/") for operation in operations):
            done(Outcome(StoreResult.UNKNOWN))
        else:
            multi(operations, done)

    store.multi = without_renewals  # type: ignore[method-assign]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def preferred() -> ElectLeadersRequest:
    return ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])


@pytest.mark.parametrize("order", [(2, 1, 3), (1, 2, 3), (1, 3, 2)])
@pytest.mark.parametrize("is_together", [False, True])
def test_a_broker_that_lacks_one_of_its_directories_leads_after_those_that_lack_none(order: Sequence[int], is_together: bool) -> None:
    """All computers lose their power, and the last leader's comes back without the directory of its log."""
    world = Nodes(3, directories=TWO)
    world.create("t", [2, 3, 1], min_insync_replicas="2")
    world.write("acknowledged")
    world.until(lambda: all(world.replica(broker_id).high_watermark == 1 for broker_id in (1, 2, 3)))
    kept = content(world.replica(2))
    for broker_id in (1, 2, 3):
        stop(world, broker_id)
    lose_directory(world, 2)
    for broker_id in order:
        world.start(broker_id, is_awaited=False)
        world.settle(0 if is_together else 2_000)
    wait_for_all(world)
    assert [content(world.replica(broker_id)) for broker_id in (1, 2, 3)] == [kept] * 3


def test_a_broker_that_lacks_one_of_its_directories_fetches_what_lay_there() -> None:
    """The other brokers run on. The broker leaves the in-sync set until it has all records again, though its other directory was closed
    cleanly."""
    world = written_on_both()
    kept = content(world.replica(2))
    stop(world, 2)
    lose_directory(world, 2)
    world.start(2)
    wait_for_all(world)
    assert world.replica(3).leader_epoch > 0 and content(world.replica(2)) == content(world.replica(3)) == kept


def test_of_the_last_in_sync_the_others_are_elected_before_it_starts_without_the_directory() -> None:
    """min.insync 1. Broker 3 had fallen behind, so it may lack records that broker 2 has lost. Only an operator can let it lead."""
    world = written_on_both()
    kept = content(world.replica(3))
    stop(world, 3)
    world.until(lambda: state(world).isr == (2,))
    world.write("on 2 alone")
    stop(world, 2)
    lose_directory(world, 2)
    world.start(3)
    world.settle(2_000)
    assert (state(world).leader, state(world).isr) == (-1, (2,))
    assert world.ask(world.controller_id, UNCLEAN).error_code == ErrorCode.NONE
    world.until(lambda: world.replica(3).is_leading)
    world.start(2)
    wait_for_all(world)
    assert world.replica(3).is_leading and content(world.replica(2)) == content(world.replica(3)) == kept


def written_on_both() -> Nodes:
    """Returns a cluster of brokers with two log directories each. A record is on both replicas."""
    world = Nodes(3, directories=TWO)
    world.create("t", [2, 3])
    world.write("on both")
    world.until(lambda: world.replica(3).high_watermark == 1)
    return world


def lose_directory(world: Nodes, broker_id: int) -> None:
    """Empties the directory that has the log, on a broker that is not running."""
    disk = world.disks[broker_id]
    (directory,) = (path for path in TWO if disk.exists(f"{path}/t-0"))
    disk.remove_tree(directory)
    disk.makedirs(directory)
