"""Decisions about partitions: changes of in-sync sets, and requests for elections and moves. Test docstrings have the ids of
docs/invariants.md.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.base.cluster_metadata import NO_LEADER, BrokerLeaving, PartitionMetadata, TopicMetadata, TopicPut
from ottla.base.errors import ErrorCode
from ottla.controller.api import ElectionType, IsrChangeRequest, PartitionResult, Reassignment
from ottla.controller.machine import (
    decide_alter_partition,
    decide_elect_leaders,
    decide_last_known,
    decide_reassign,
)
from ottla.controller.membership import decide_brokers_changed, decide_controlled_shutdown
from ottla.controller.plans import Plan
from ottla.controller.state import ClusterState
from tests.controller.cluster import Rules, applied, isr_change, joined, state_of, with_topic

RULES = Rules()


ISR_REFUSED = [
    ("another leader epoch is newer", isr_change([(1, 101)], leader_epoch=6), ErrorCode.NOT_CONTROLLER),
    ("a partition epoch is newer", isr_change([(1, 101)], partition_epoch=10), ErrorCode.NOT_CONTROLLER),
    ("an old leader", isr_change([(1, 101)], leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    ("an old partition epoch", isr_change([(1, 101)], partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
    ("without the leader (I9)", isr_change([(2, 102)]), ErrorCode.INVALID_REQUEST),
    ("no replica", isr_change([(1, 101), (9, 109)]), ErrorCode.INVALID_REQUEST),
    ("twice the same", isr_change([(1, 101), (1, 101)]), ErrorCode.INVALID_REQUEST),
    ("a member that restarted (KIP-903, I13)", isr_change([(1, 101), (2, 55)]), ErrorCode.INELIGIBLE_REPLICA),
    ("a joining member that names no epoch", isr_change([(1, 101), (2, -1)]), ErrorCode.INELIGIBLE_REPLICA),
    ("a dead member", isr_change([(1, 101), (3, 103)]), ErrorCode.INELIGIBLE_REPLICA),
    ("unknown topic", isr_change([(1, 101)], topic_id=bytes(16)), ErrorCode.UNKNOWN_TOPIC_ID),
    ("unknown partition", isr_change([(1, 101)], partition=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("negative partition", isr_change([(1, 101)], partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]


@pytest.mark.parametrize(("asked", "error"), [row[1:] for row in ISR_REFUSED], ids=[row[0] for row in ISR_REFUSED])
def test_isr_changes_that_are_refused(asked: IsrChangeRequest, error: ErrorCode) -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2, 3), (1, 3)))
    plan = decide_alter_partition(state, 1, 101, [asked], RULES)
    top, (result,) = plan.answer
    assert (top, result.error) == (ErrorCode.NONE, error)
    assert plan.operations == ()


def test_a_broker_that_is_about_to_stop_does_not_join_but_a_member_stays() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2)))
    state.apply([BrokerLeaving(2, 102), BrokerLeaving(3, 103)])
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101), (2, -1), (3, 103)])], RULES)
    assert plan.answer[1][0].error is ErrorCode.INELIGIBLE_REPLICA
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101)])], RULES)
    assert plan.answer[1][0].error is ErrorCode.NONE
    state.apply([BrokerLeaving(1, 101)])
    assert decide_elect_leaders(state, ElectionType.PREFERRED, [("t", 0)], RULES).answer[0].error is ErrorCode.ELECTION_NOT_NEEDED


def eligible(state: ClusterState) -> tuple[int, ...]:
    partition = state.partition("t", 0)
    assert partition is not None
    return partition.eligible


def test_the_isr_becomes_smaller_than_the_minimum_only_into_the_eligible() -> None:
    """KIP-966."""
    rules = Rules(in_sync_min=2)
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)))
    state.apply(decide_alter_partition(state, 1, 101, [isr_change([(1, 101), (2, 102)])], rules).changes)
    assert eligible(state) == (), "3 left while enough were in sync"
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101)], partition_epoch=10)], rules)
    assert plan.answer[1][0].eligible == (2,)
    state.apply(plan.changes)
    assert eligible(state) == (2,)
    state.apply(decide_alter_partition(state, 1, 101, [isr_change([(1, 101), (3, 103)], partition_epoch=11)], rules).changes)
    assert eligible(state) == (), "enough are in sync again"


def test_only_the_leader_ends_what_was_eligible_when_the_minimum_is_lower() -> None:
    """The leader may not have opened its log yet, so the controller does not end the eligibility by itself. A higher minimum makes no
    replica eligible."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    state.apply(decide_alter_partition(state, 1, 101, [isr_change([(1, 101)])], Rules(in_sync_min=2)).changes)
    assert eligible(state) == (2,)
    assert decide_last_known(state, RULES) == Plan()
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101)], partition_epoch=10)], RULES)
    assert applied(state, plan) == [(1, 5, 11, (1,))]
    assert eligible(state) == ()
    assert decide_last_known(state, Rules(in_sync_min=2)) == Plan()


def test_only_the_leader_ends_what_is_eligible_when_a_member_stops_or_replicas_move() -> None:
    """Three brokers were killed, and brokers 1 and 2 came back. Neither has opened its log yet."""

    def restarted() -> ClusterState:
        state = with_topic(state_of(), (1, (1, 2, 3), (1, 2, 3)))
        state.apply(decide_brokers_changed(state, [joined(1), joined(2)], [], RULES).changes)
        assert isr_and_eligible(state) == ((1, 2), (3,))
        return state

    state = restarted()
    state.apply(decide_controlled_shutdown(state, 2, 502, RULES).changes)
    assert isr_and_eligible(state) == ((1,), (2, 3))
    state = with_topic(state_of(1, 4, 5), (1, (1, 2, 3, 4), (1, 4)))
    topic = state.topic("t")
    assert topic is not None
    moving = replace(topic.partitions[0], adding_replicas=(4,), eligible=(2, 3))
    state.apply([TopicPut(replace(topic, partitions=(moving,)))])
    state.apply(decide_reassign(state, [Reassignment(topic="t", partition=0, replicas=(1, 5))], RULES).changes)
    assert isr_and_eligible(state) == ((1,), (2, 3)), "broker 4 is a replica no longer"


def isr_and_eligible(state: ClusterState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    partition = state.partition("t", 0)
    assert partition is not None
    return partition.isr, partition.eligible


def test_isr_change_by_a_broker_that_does_not_lead() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    _, (result,) = decide_alter_partition(state, 2, 102, [isr_change([(1, 101), (2, 102)])], RULES).answer
    assert result.error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 100), (9, 1)])
def test_isr_change_of_an_earlier_incarnation(broker_id: int, epoch: int) -> None:
    """P4."""
    state = with_topic(state_of(1), (1, (1,), (1,)))
    assert decide_alter_partition(state, broker_id, epoch, [isr_change([(1, 101)])], RULES).answer == (ErrorCode.STALE_BROKER_EPOCH, [])


def test_an_isr_change_keeps_the_leader_epoch() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101), (2, 102)])], RULES)
    _, (result,) = plan.answer
    assert (result.error, result.leader_epoch, result.partition_epoch, result.isr) == (ErrorCode.NONE, 5, 10, (1, 2))
    assert applied(state, plan) == [(1, 5, 10, (1, 2))]


def test_the_same_isr_again_writes_nothing() -> None:
    state = with_topic(state_of(1), (1, (1,), (1,)))
    plan = decide_alter_partition(state, 1, 101, [isr_change([(1, 101)])], RULES)
    assert (plan.operations, plan.answer[1][0].partition_epoch) == ((), 9)


def test_one_partition_twice_in_a_request() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    both = isr_change([(1, 101), (2, 102)])
    _, results = decide_alter_partition(state, 1, 101, [both, both], RULES).answer
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def election_results(plan: Plan) -> list[tuple[int, ErrorCode]]:
    results: list[PartitionResult] = plan.answer
    return [(result.partition, result.error) for result in results]


def test_preferred_elections() -> None:
    state = with_topic(state_of(1, 2), (2, (1, 2), (1, 2)), (1, (1, 2), (1, 2)), (2, (3, 2), (2,)))
    plan = decide_elect_leaders(state, ElectionType.PREFERRED, [("t", 0), ("t", 1), ("t", 2), ("x", 0)], RULES)
    assert election_results(plan) == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert applied(state, plan)[0] == (1, 6, 10, (1, 2))


def test_elections_of_all_leave_out_what_needs_none() -> None:
    state = with_topic(state_of(1, 2), (2, (1, 2), (1, 2)), (1, (1, 2), (1, 2)))
    assert election_results(decide_elect_leaders(state, ElectionType.PREFERRED, None, RULES)) == [(0, ErrorCode.NONE)]


def test_unclean_elections_on_request() -> None:
    state = with_topic(state_of(2), (NO_LEADER, (1, 2), (1,)), (2, (2,), (2,)), (NO_LEADER, (1,), (1,)))
    plan = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0), ("t", 1), ("t", 2)], RULES)
    assert [error for _, error in election_results(plan)] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ]
    assert applied(state, plan)[0] == (2, 6, 10, (2,))
    assert state.unclean_elections == 1
    joined_again = decide_elect_leaders(state, ElectionType.PREFERRED, None, RULES)
    applied(state, joined_again)
    assert state.unclean_elections == 1


def without_state(state: ClusterState) -> ClusterState:
    """Makes the state of a partition unreadable."""
    damaged = PartitionMetadata(index=0, leader=NO_LEADER, leader_epoch=-1, replicas=(1, 2), isr=(), partition_epoch=-1)
    state.apply([TopicPut(TopicMetadata(name="t", topic_id=b"t" * 16, partitions=(damaged,)))])
    return state


def test_a_state_that_cannot_be_read_is_not_overwritten_by_elections_and_moves() -> None:
    """Otherwise a state of epoch 0 would be written whatever the node's version is, and followers would refuse it."""
    state = without_state(state_of(1, 2, 3))
    plan = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0)], RULES)
    assert election_results(plan) == [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)] and plan.operations == ()
    plan = decide_reassign(state, [Reassignment(topic="t", partition=0, replicas=[3, 2])], RULES)
    assert plan.answer[0].error is ErrorCode.LEADER_NOT_AVAILABLE and plan.operations == ()
    allowed = Rules(is_unclean_allowed=True)
    plan = decide_brokers_changed(state, [joined(1, epoch=201)], [2], allowed)
    assert not any(operation.path.endswith("/state") for operation in plan.operations)


def reassign(state: ClusterState, replicas: list[int] | None) -> tuple[ErrorCode, PartitionMetadata]:
    plan = decide_reassign(state, [Reassignment(topic="t", partition=0, replicas=replicas)], RULES)
    state.apply(plan.changes)
    partition = state.partition("t", 0)
    assert partition is not None
    return plan.answer[0].error, partition


def test_a_move_of_replicas_from_begin_to_end() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    error, partition = reassign(state, [3, 2])
    assert (error, partition.replicas, partition.adding_replicas, partition.removing_replicas) == (ErrorCode.NONE, (3, 2, 1), (3,), (1,))
    caught_up = isr_change([(1, 101), (2, 102), (3, 103)], partition_epoch=10)
    state.apply(decide_alter_partition(state, 1, 101, [caught_up], RULES).changes)
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
    # While replicas move, the set of the old replicas is kept, but not their order.
    assert (error, sorted(partition.replicas), partition.adding_replicas) == (ErrorCode.NONE, [1, 2], ())


def test_a_move_is_cancelled_also_while_a_broker_that_it_came_from_is_gone() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    reassign(state, [3, 1])
    state.apply(decide_brokers_changed(state, [], [2], RULES).changes)
    error, partition = reassign(state, None)
    assert (error, sorted(partition.replicas), partition.adding_replicas) == (ErrorCode.NONE, [1, 2], ())


def test_a_cancelled_move_takes_the_added_ones_out_again() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    reassign(state, [3, 4])
    reassign(state, [3, 2])
    caught_up = isr_change([(1, 101), (3, 103)], partition_epoch=10)
    state.apply(decide_alter_partition(state, 1, 101, [caught_up], RULES).changes)
    error, partition = reassign(state, None)
    assert (error, sorted(partition.replicas), partition.isr, partition.leader) == (ErrorCode.NONE, [1, 2], (1,), 1)


def test_a_move_is_not_cancelled_when_only_the_added_ones_could_lead() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1,), (1,)))
    reassign(state, [2, 3])
    state.apply(decide_alter_partition(state, 1, 101, [isr_change([(1, 101), (2, 102)], partition_epoch=10)], RULES).changes)
    state.apply(decide_brokers_changed(state, [], [1], RULES).changes)
    error, partition = reassign(state, [3])
    assert (error, partition.leader, partition.isr) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, 2, (2,))


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
