"""Decisions about partitions: brokers come and go, in-sync sets change, elections are asked for. Ids of correctness.md stand with the
tests.
"""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import NO_LEADER, BrokerMetadata, PartitionMetadata, TopicMetadata, TopicPut
from ottla.base.errors import ErrorCode
from ottla.base.ports import Check, Set
from ottla.controller import znodes
from ottla.controller.api import ElectionType, IsrChangeRequest, PartitionResult, Reassignment
from ottla.controller.machine import (
    Plan,
    decide_alter_partition,
    decide_brokers_changed,
    decide_controlled_shutdown,
    decide_elect_leaders,
    decide_reassign,
)
from ottla.controller.state import ClusterState
from tests.controller.cluster import state_of

TOPIC_ID = bytes(range(16))


def with_topic(state: ClusterState, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ClusterState:
    """Adds topic `t`; each partition is (leader, replicas, isr), with leader epoch 5 and partition epoch 9."""
    made = tuple(
        PartitionMetadata(index=index, leader=leader, leader_epoch=5, replicas=replicas, isr=isr, partition_epoch=9, controller_epoch=1)
        for index, (leader, replicas, isr) in enumerate(partitions)
    )
    state.apply([TopicPut(TopicMetadata(name="t", topic_id=TOPIC_ID, partitions=made))])
    return state


def applied(state: ClusterState, plan: Plan) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """(leader, leader epoch, partition epoch, isr) of each partition after the plan."""
    state.apply(plan.changes)
    topic = state.topic("t")
    assert topic is not None
    return [(part.leader, part.leader_epoch, part.partition_epoch, part.isr) for part in topic.partitions]


def never(_topic: TopicMetadata) -> bool:
    return False


def always(_topic: TopicMetadata) -> bool:
    return True


def joined(broker_id: int) -> BrokerMetadata:
    return BrokerMetadata(broker_id=broker_id, endpoints={}, epoch=500 + broker_id)


def test_every_write_begins_with_the_controllers_epoch_and_names_versions() -> None:
    """I9, I39."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (2, (2, 1), (1, 2)))
    plan = decide_brokers_changed(state, [], [1], never)
    check, *writes = plan.operations
    assert check == Check(znodes.CONTROLLER_EPOCH, 7)
    assert [write.version for write in writes if isinstance(write, Set)] == [9, 9]
    assert len(writes) == 2


def test_a_dead_leader_is_replaced_and_the_dead_leave_the_isr() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)), (2, (2, 1), (2, 1)), (3, (3,), (3,)))
    plan = decide_brokers_changed(state, [], [1], never)
    assert applied(state, plan) == [(2, 6, 10, (2, 3)), (2, 6, 10, (2,)), (3, 5, 9, (3,))]
    assert 1 not in state.brokers


def test_no_replica_in_sync_leaves_no_leader_and_keeps_the_isr() -> None:
    """P10: the replica with the acknowledged records stays the only one that may lead."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    assert applied(state, decide_brokers_changed(state, [], [1], never)) == [(NO_LEADER, 6, 10, (1,))]
    assert applied(state, decide_brokers_changed(state, [], [], never)) == [(NO_LEADER, 6, 10, (1,))]
    assert applied(state, decide_brokers_changed(state, [joined(1)], [], never)) == [(1, 7, 11, (1,))]


def test_unclean_only_where_allowed() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    assert applied(state, decide_brokers_changed(state, [], [1], always)) == [(2, 6, 10, (2,))]


def test_a_restarted_leader_leads_under_a_new_epoch() -> None:
    """I15."""
    state = with_topic(state_of(1), (1, (1,), (1,)))
    assert applied(state, decide_brokers_changed(state, [joined(1)], [], never)) == [(1, 6, 10, (1,))]
    assert state.brokers[1].epoch == 501


def test_offline_replicas_follow_the_live_brokers() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    state.apply(decide_brokers_changed(state, [], [2], never).changes)
    partition = state.partition("t", 0)
    assert partition is not None
    assert partition.offline_replicas == (2,)
    state.apply(decide_brokers_changed(state, [joined(2)], [], never).changes)
    partition = state.partition("t", 0)
    assert partition is not None
    assert partition.offline_replicas == ()


def test_controlled_shutdown_hands_over_what_others_can_lead() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (1, (1, 2), (1,)), (2, (2, 1), (2, 1)), (1, (1,), (1,)))
    plan = decide_controlled_shutdown(state, 1, 101)
    assert plan.answer == (ErrorCode.NONE, [("t", 1), ("t", 3)])
    assert applied(state, plan) == [(2, 6, 10, (2,)), (1, 5, 9, (1,)), (2, 6, 10, (2,)), (1, 5, 9, (1,))]


def test_controlled_shutdown_of_an_earlier_incarnation() -> None:
    """P4, KIP-380."""
    plan = decide_controlled_shutdown(state_of(1), 1, 99)
    assert plan == Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))


def change(
    isr: list[tuple[int, int]], *, leader_epoch: int = 5, partition_epoch: int = 9, topic_id: bytes = TOPIC_ID, partition: int = 0
) -> IsrChangeRequest:
    return IsrChangeRequest(topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr)


ISR_REFUSED = [
    ("another leader epoch is newer", change([(1, 101)], leader_epoch=6), ErrorCode.NOT_CONTROLLER),
    ("a partition epoch is newer", change([(1, 101)], partition_epoch=10), ErrorCode.NOT_CONTROLLER),
    ("an old leader", change([(1, 101)], leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    ("an old partition epoch", change([(1, 101)], partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
    ("without the leader (I9)", change([(2, 102)]), ErrorCode.INVALID_REQUEST),
    ("no replica", change([(1, 101), (9, 109)]), ErrorCode.INVALID_REQUEST),
    ("twice the same", change([(1, 101), (1, 101)]), ErrorCode.INVALID_REQUEST),
    ("a member that restarted (KIP-903, I13)", change([(1, 101), (2, 55)]), ErrorCode.INELIGIBLE_REPLICA),
    ("a dead member", change([(1, 101), (3, 103)]), ErrorCode.INELIGIBLE_REPLICA),
    ("unknown topic", change([(1, 101)], topic_id=bytes(16)), ErrorCode.UNKNOWN_TOPIC_ID),
    ("unknown partition", change([(1, 101)], partition=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("negative partition", change([(1, 101)], partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]


@pytest.mark.parametrize(("asked", "error"), [row[1:] for row in ISR_REFUSED], ids=[row[0] for row in ISR_REFUSED])
def test_isr_changes_that_are_refused(asked: IsrChangeRequest, error: ErrorCode) -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2, 3), (1, 3)))
    plan = decide_alter_partition(state, 1, 101, [asked])
    top, (result,) = plan.answer
    assert (top, result.error) == (ErrorCode.NONE, error)
    assert plan.operations == ()


def test_isr_change_by_a_broker_that_does_not_lead() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    _, (result,) = decide_alter_partition(state, 2, 102, [change([(1, 101), (2, 102)])]).answer
    assert result.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 100), (9, 1)])
def test_isr_change_of_an_earlier_incarnation(broker_id: int, epoch: int) -> None:
    """P4."""
    state = with_topic(state_of(1), (1, (1,), (1,)))
    assert decide_alter_partition(state, broker_id, epoch, [change([(1, 101)])]).answer == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_an_isr_change_keeps_the_leader_epoch() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    plan = decide_alter_partition(state, 1, 101, [change([(1, 101), (2, 102)])])
    _, (result,) = plan.answer
    assert (result.error, result.leader_epoch, result.partition_epoch, result.isr) == (ErrorCode.NONE, 5, 10, (1, 2))
    assert applied(state, plan) == [(1, 5, 10, (1, 2))]


def test_the_same_isr_again_writes_nothing() -> None:
    state = with_topic(state_of(1), (1, (1,), (1,)))
    plan = decide_alter_partition(state, 1, 101, [change([(1, 101)])])
    assert (plan.operations, plan.answer[1][0].partition_epoch) == ((), 9)


def test_one_partition_twice_in_a_request() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    both = change([(1, 101), (2, 102)])
    _, results = decide_alter_partition(state, 1, 101, [both, both]).answer
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def election_results(plan: Plan) -> list[tuple[int, ErrorCode]]:
    results: list[PartitionResult] = plan.answer
    return [(result.partition, result.error) for result in results]


def test_preferred_elections() -> None:
    state = with_topic(state_of(1, 2), (2, (1, 2), (1, 2)), (1, (1, 2), (1, 2)), (2, (3, 2), (2,)))
    plan = decide_elect_leaders(state, ElectionType.PREFERRED, [("t", 0), ("t", 1), ("t", 2), ("x", 0)])
    assert election_results(plan) == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert applied(state, plan)[0] == (1, 6, 10, (1, 2))


def test_elections_of_all_leave_out_what_needs_none() -> None:
    state = with_topic(state_of(1, 2), (2, (1, 2), (1, 2)), (1, (1, 2), (1, 2)))
    assert election_results(decide_elect_leaders(state, ElectionType.PREFERRED, None)) == [(0, ErrorCode.NONE)]


def test_unclean_elections_on_request() -> None:
    state = with_topic(state_of(2), (NO_LEADER, (1, 2), (1,)), (2, (2,), (2,)), (NO_LEADER, (1,), (1,)))
    plan = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0), ("t", 1), ("t", 2)])
    assert [error for _, error in election_results(plan)] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ]
    assert applied(state, plan)[0] == (2, 6, 10, (2,))


def reassign(state: ClusterState, replicas: list[int] | None) -> tuple[ErrorCode, PartitionMetadata]:
    plan = decide_reassign(state, [Reassignment(topic="t", partition=0, replicas=replicas)])
    state.apply(plan.changes)
    partition = state.partition("t", 0)
    assert partition is not None
    return plan.answer[0].error, partition


def test_a_move_of_replicas_from_begin_to_end() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    error, partition = reassign(state, [3, 2])
    assert (error, partition.replicas, partition.adding_replicas, partition.removing_replicas) == (ErrorCode.NONE, (3, 2, 1), (3,), (1,))
    caught_up = change([(1, 101), (2, 102), (3, 103)], partition_epoch=10)
    state.apply(decide_alter_partition(state, 1, 101, [caught_up]).changes)
    ended = state.partition("t", 0)
    assert ended is not None
    assert (ended.replicas, ended.isr, ended.leader, ended.leader_epoch, ended.partition_epoch) == ((3, 2), (2, 3), 3, 6, 11)
    assert (ended.adding_replicas, ended.removing_replicas) == ((), ())
    topic = state.topic("t")
    assert topic is not None
    assert topic.version == 2


def test_a_cancelled_move_goes_back() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    reassign(state, [3, 2])
    error, partition = reassign(state, None)
    # The old order is not kept while replicas move; the old replicas are.
    assert (error, sorted(partition.replicas), partition.adding_replicas) == (ErrorCode.NONE, [1, 2], ())


def test_a_new_order_holds_at_once() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    error, partition = reassign(state, [2, 1])
    assert (error, partition.replicas, partition.leader, partition.partition_epoch) == (ErrorCode.NONE, (2, 1), 1, 10)


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([1], ErrorCode.NONE),
    ],
)
def test_reassignment_on_a_single_broker(replicas: list[int] | None, expected: ErrorCode) -> None:
    state = with_topic(state_of(1), (1, (1,), (1,)))
    error, partition = reassign(state, replicas)
    assert (error, partition.partition_epoch) == (expected, 9)
