"""Several brokers: one of them is the controller, all serve the metadata that it sends, and a replaced controller writes nothing more."""

from __future__ import annotations

import pytest

from ottla.base.control_messages import LeaderAndIsr
from ottla.base.errors import ErrorCode
from ottla.base.ports import Create, Delete, Outcome, Set, StoreResult
from ottla.metadata_store import znodes
from tests.cluster.brokers import Brokers, Member
from tests.controller.cluster import Cluster
from tests.fakes.memory_store import MemoryStore


def leaders(member: Member, topic: str) -> list[int]:
    found = member.cache.topic(topic)
    assert found is not None
    return [partition.leader for partition in found.partitions]


def take_over(world: Brokers) -> None:
    """Raises the epoch and replaces `/controller` in one write, as another broker would, while the old controller's session lives."""
    nodes = world.model.tree.nodes()
    answers: list[Outcome] = []
    epoch = nodes[znodes.CONTROLLER_EPOCH]
    raised = znodes.controller_epoch_bytes(znodes.read_controller_epoch(epoch.data) + 1)
    other = world.model.session()
    other.multi(
        [
            Set(znodes.CONTROLLER_EPOCH, raised, epoch.version),
            Delete(znodes.CONTROLLER),
            Create(znodes.CONTROLLER, znodes.controller_bytes(99, 0), ephemeral=True),
        ],
        answers.append,
    )
    assert answers[0].result is StoreResult.OK


def test_one_broker_is_the_controller_and_all_serve_the_same() -> None:
    world = Brokers(3)
    assert world.active() == [0]
    answers = world.controller.create("a", partitions=3, replicas=2)
    world.settle()
    assert [answer.error for answer in answers] == [ErrorCode.NONE]
    for member in world.members.values():
        assert member.cache.topic("a") == world.controller.controller.state.topic("a")
        assert (member.cache.controller_id, sorted(member.cache.brokers), member.cache.cluster_id) == (0, [0, 1, 2], "test-cluster")
        hosted = [state.partition.index for state in member.replicas.states]
        topic = member.cache.topic("a")
        assert topic is not None and hosted == [part.index for part in topic.partitions if member.broker_id in part.replicas]


def test_the_cache_is_not_the_controllers_state_and_shares_its_values() -> None:
    cluster = Cluster()
    cluster.create("a")
    assert cluster.cache is not cluster.metadata
    assert cluster.cache.topic("a") is cluster.metadata.topic("a")


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    world = Brokers(2)
    assert [answer.error for answer in world.members[1].create("a")] == [ErrorCode.NOT_CONTROLLER]


def test_an_id_in_use_is_refused_with_one_line() -> None:
    world = Brokers(1)
    store = world.model.session()
    twin = Member(world, 0, store)
    world.settle()
    (reason,) = twin.refusals
    assert reason.startswith("broker.id 0 is in use: another broker is registered at /brokers/ids/0")
    assert not twin.controller.is_active and twin.member.broker_epoch() == -1


def test_a_store_of_another_cluster_is_refused() -> None:
    store = Cluster().store.reopened()
    assert Cluster(store, cluster_id="another").refusals == ["the metadata store belongs to cluster test-cluster, this broker to another"]


def test_joining_a_store_that_cannot_be_written_fails_with_one_line() -> None:
    cluster = Cluster()
    store = cluster.store.reopened()
    store.fail_next(StoreResult.DISK_FAILED)
    refused = Cluster(store)
    assert refused.refusals == ["broker 0 cannot register: DISK_FAILED in the metadata store"]
    assert not refused.is_started


def test_the_next_controller_comes_when_the_session_of_the_last_one_expires() -> None:
    world = Brokers(3)
    world.controller.create("a", partitions=3, replicas=3)
    world.settle()
    old = world.members[0]
    old.store.expire()
    world.settle()
    assert len(world.active()) == 1 and world.active() != [0]
    controller = world.controller
    assert controller.controller.state.controller_epoch == 2
    assert 0 not in leaders(controller, "a") and sorted(controller.cache.brokers) == [1, 2]
    assert [answer.error for answer in old.create("b")] == [ErrorCode.NOT_CONTROLLER]
    epoch = controller.cache.brokers.get(0)
    old.store.renew()
    world.settle()
    assert epoch is None and old.member.broker_epoch() == controller.cache.brokers[0].epoch
    assert old.cache.topic("a") == controller.cache.topic("a") and old.cache.controller_id == controller.broker_id
    assert world.active() == [controller.broker_id]


def test_each_broker_is_ready_once_when_a_controller_has_sent_it_its_replicas() -> None:
    world = Brokers(3)
    assert [member.readied for member in world.members.values()] == [1, 1, 1]
    world.controller.create("a", partitions=3, replicas=3)
    world.settle()
    assert [member.readied for member in world.members.values()] == [1, 1, 1]


@pytest.mark.parametrize("fault", [{}, {"is_late": True}])
def test_a_controller_whose_session_expired_with_a_write_under_way_writes_nothing_more(fault: dict[str, bool]) -> None:
    """I39: it writes neither at once, nor late, nor by another attempt."""
    world = Brokers(2, is_timed=True, delay_ms=lambda: 10)
    old = world.controller
    old.store.fail_next(StoreResult.UNKNOWN, **fault)
    answers = old.create("lost")
    world.timers.advance(15)  # the answer UNKNOWN has come; what the controller does next has not arrived
    old.store.disconnect()
    old.store.expire()
    world.settle()
    assert world.active() == [0, 1] and answers == [], "the old one does not know yet"
    new = world.members[1]
    before = new.create("kept")
    world.settle()
    old.store.reconnect()
    old.store.renew()
    world.settle()
    assert [answer.error for answer in (*before, *answers)] == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER]
    assert world.active() == [1]
    assert [path for path in world.model.tree.nodes() if path.startswith("/brokers/topics/") and path.count("/") == 3] == [
        "/brokers/topics/kept"
    ]


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_replaced_controller_does_not_take_over_the_new_epoch_by_reading(is_applied: bool) -> None:
    """I38: after an unknown outcome it looks at the tree, finds a successor's epoch, and resigns."""
    world = Brokers(1)
    old = world.controller
    old.create("a")
    world.settle()
    if not is_applied:
        take_over(world)
    old.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
    if is_applied:
        old.store.fail_next_read()
    answers = old.create("b")
    if is_applied:
        take_over(world)
    before = world.model.tree.nodes()
    world.settle()
    assert [answer.error for answer in answers] == [ErrorCode.NOT_CONTROLLER]
    assert world.active() == [] and old.controller.state.controller_epoch == 1
    assert [answer.error for answer in old.create("c")] == [ErrorCode.NOT_CONTROLLER]
    world.settle()
    assert world.model.tree.nodes() == before


def test_an_election_of_unknown_outcome_is_won_or_repeated() -> None:
    for fault in ({"is_applied": True}, {"is_applied": False}, {"is_late": True}):
        cluster = Cluster()
        store = cluster.store.reopened()
        writes: list[int] = []
        works = store.multi

        def claim(operations, done, store=store, fault=fault, writes=writes, works=works) -> None:  # type: ignore[no-untyped-def]
            if any(operation.path == znodes.CONTROLLER for operation in operations):
                writes.append(1)
                if len(writes) == 1:
                    store.fail_next(StoreResult.UNKNOWN, **fault)
            works(operations, done)

        store.multi = claim  # type: ignore[method-assign]
        again = Cluster(store)
        again.timers.advance(1_000)
        assert again.is_started and again.metadata.controller_epoch == 2, fault
        assert znodes.read_controller_epoch(store.nodes()[znodes.CONTROLLER_EPOCH].data) == 2
        assert again.create("a")[0].error is ErrorCode.NONE


def test_a_registration_of_unknown_outcome_is_found_or_repeated() -> None:
    for fault in ({"is_applied": True}, {"is_applied": False}, {"is_late": True}):
        store = Cluster().store.reopened()
        store.fail_next(StoreResult.UNKNOWN, **fault)
        cluster = Cluster(store)
        cluster.timers.advance(1_000)
        assert cluster.refusals == [] and cluster.is_started
        assert cluster.member.broker_epoch() == store.nodes()[znodes.broker_path(0)].czxid


def test_a_first_start_without_a_connection_goes_on_when_there_is_one() -> None:
    store = MemoryStore()
    store.disconnect()
    cluster = Cluster(store)
    assert not cluster.is_started
    store.reconnect()
    cluster.timers.advance(1_000)
    assert cluster.is_started and cluster.create("a")[0].error is ErrorCode.NONE


def test_a_broker_that_leaves_leads_nothing_and_one_that_is_back_gets_everything() -> None:
    world = Brokers(3)
    world.controller.create("a", partitions=4, replicas=2)
    world.settle()
    gone = world.members[2]
    gone.store.close()
    world.settle()
    assert 2 not in leaders(world.controller, "a") and 2 not in world.members[1].cache.brokers
    topic = world.members[1].cache.topic("a")
    assert topic is not None and all((2 in part.offline_replicas) == (2 in part.replicas) for part in topic.partitions)
    back = Member(world, 2, world.model.session())
    world.settle()
    assert back.cache.topic("a") == world.controller.cache.topic("a")
    topic = back.cache.topic("a")
    assert topic is not None and not any(part.offline_replicas for part in topic.partitions)
    assert [state.partition.index for state in back.replicas.states] == [part.index for part in topic.partitions if 2 in part.replicas]


@pytest.mark.parametrize("fault", [StoreResult.OK, StoreResult.UNKNOWN, StoreResult.NODE_EXISTS])
def test_a_broker_that_restarted_is_sent_nothing_of_its_former_life(fault: StoreResult) -> None:
    """I15: by an old message the broker would lead again in its former leader epoch, though it may have lost records of that epoch."""
    world = Brokers(3, is_timed=True)
    assert world.active() == [0]
    world.controller.create("a", partitions=6, replicas=2)
    world.settle()
    restarted = world.members[2]
    topic = world.controller.controller.state.topic("a")
    assert topic is not None
    former = {partition.index: partition for partition in topic.partitions}
    assert any(partition.leader == restarted.broker_id for partition in topic.partitions)
    restarted.store.expire()
    restarted.store.renew()
    if fault is not StoreResult.OK:
        world.controller.store.fail_next(fault)
    world.settle()
    epoch = restarted.member.broker_epoch()
    roles = [
        role
        for broker_id, message in world.sent
        if broker_id == restarted.broker_id and message.broker_epoch == epoch and isinstance(message, LeaderAndIsr)
        for role in message.states
        if role.topic == "a"
    ]
    assert roles
    for role in roles:
        before = former[role.partition.index]
        assert role.partition.leader != restarted.broker_id or role.partition.leader_epoch > before.leader_epoch
        assert restarted.broker_id not in role.partition.isr or role.partition.partition_epoch > before.partition_epoch


def test_topics_that_are_deleted_go_from_every_broker() -> None:
    world = Brokers(2)
    world.controller.create("a", replicas=2)
    world.settle()
    answers: list[object] = []
    world.controller.controller.delete_topics(["a"], answers.extend)
    world.settle()
    assert len(answers) == 1
    for member in world.members.values():
        assert member.cache.topic("a") is None
        assert [(stopped.partition, stopped.is_deleted) for stopped in member.replicas.stopped] == [(0, True), (1, True)]
    assert not any("/topics/a" in path or "delete_topics/" in path for path in world.model.tree.nodes())
