"""Decisions about brokers that register, fail, restart and stop. Test docstrings have the ids of docs/invariants.md."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from ottla.base.cluster_metadata import NO_LEADER, BrokerEpochsNoted, BrokerLeaving, BrokerMetadata, LogDirectoryHistory, PartitionMetadata
from ottla.base.errors import ErrorCode
from ottla.base.ports import Check, Create, Set
from ottla.controller.api import ElectionType, IsrChangeRequest
from ottla.controller.log_dir_events import decide_log_dir_events
from ottla.controller.machine import decide_alter_partition, decide_elect_leaders, decide_last_known
from ottla.controller.membership import decide_brokers_changed, decide_controlled_shutdown, restarted_brokers
from ottla.controller.plans import Plan
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from ottla.metadata_store.log_dir_nodes import LogDirEvent
from tests.controller.cluster import Rules, applied, joined, state_of, with_topic

RULES = Rules()
TWO = Rules(in_sync_min=2)


def partition(state: ClusterState, index: int = 0) -> PartitionMetadata:
    found = state.partition("t", index)
    assert found is not None
    return found


def test_every_write_begins_with_the_controllers_epoch_and_names_versions() -> None:
    """I9, I39."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (2, (2, 1), (1, 2)))
    plan = decide_brokers_changed(state, [], [1], RULES)
    check, *writes = plan.operations
    assert check == Check(znodes.CONTROLLER_EPOCH, 7)
    assert [write.version for write in writes if isinstance(write, Set)] == [9, 9]
    assert len(writes) == 2


def test_a_dead_leader_is_replaced_and_the_dead_leave_the_isr() -> None:
    """KAFKA-15021: where only the ISR changes, the leader epoch does not."""
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)), (2, (2, 1), (2, 1)), (3, (3,), (3,)))
    plan = decide_brokers_changed(state, [], [1], RULES)
    assert applied(state, plan) == [(2, 6, 10, (2, 3)), (2, 5, 10, (2,)), (3, 5, 9, (3,))]
    assert 1 not in state.brokers


def test_no_replica_in_sync_leaves_no_leader_and_keeps_the_isr() -> None:
    """P10: the replica with the acknowledged records stays the only one that may lead."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    assert applied(state, decide_brokers_changed(state, [], [1], RULES)) == [(NO_LEADER, 6, 10, (1,))]
    assert partition(state).last_leader == 1
    assert applied(state, decide_brokers_changed(state, [], [], RULES)) == [(NO_LEADER, 6, 10, (1,))]
    assert applied(state, decide_brokers_changed(state, [joined(1)], [], RULES)) == [(1, 7, 11, (1,))]
    assert partition(state).last_leader == NO_LEADER


def test_unclean_only_where_allowed_and_logged_with_what_may_be_lost() -> None:
    """P10."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    plan = decide_brokers_changed(state, [], [1], Rules(is_unclean_allowed=True))
    assert applied(state, plan) == [(2, 6, 10, (2,))]
    (note,) = plan.notes
    assert note == (
        "unclean election: t-0 is led by broker 2 from leader epoch 6, which was not in sync; "
        "acknowledged records that only brokers [1] held may be lost"
    )


def test_many_unclean_elections_are_counted() -> None:
    state = with_topic(state_of(1, 2), *[(1, (1, 2), (1,))] * 150)
    notes = decide_brokers_changed(state, [], [1], Rules(is_unclean_allowed=True)).notes
    assert (len(notes), notes[-1]) == (101, "50 more elections of this kind")


def test_all_stay_eligible_until_a_restarted_leader_has_opened_its_log() -> None:
    """All replicas stay eligible whatever `min.insync.replicas` is: the leader's log may turn out to be missing, and then another replica
    must lead."""
    state = with_topic(state_of(), (1, (1, 2, 3), (1, 2, 3)))
    applied(state, decide_brokers_changed(state, [joined(1)], [], RULES))
    assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (1, (1,), (2, 3))
    applied(state, decide_brokers_changed(state, [joined(2)], [], RULES))
    assert partition(state).eligible == (2, 3), "only the leader can say that its log is open"
    failed = LogDirEvent(broker_id=1, broker_epoch=501, replicas=((partition_id(state)),))
    applied(state, decide_log_dir_events(state, [failed], RULES))
    assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (2, (2,), (3,))
    proved = IsrChangeRequest(
        topic_id=partition_id(state)[0], partition=0, leader_epoch=partition(state).leader_epoch,
        partition_epoch=partition(state).partition_epoch, isr=((2, 502),),
    )  # fmt: skip
    applied(state, decide_alter_partition(state, 2, 502, [proved], RULES))
    assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (2, (2,), ())


def test_the_eligible_replicas_wait_for_their_brokers_when_the_restarted_leader_has_lost_its_log() -> None:
    state = with_topic(state_of(), (1, (1, 2, 3), (1, 2, 3)))
    applied(state, decide_brokers_changed(state, [joined(1)], [], RULES))
    applied(state, decide_log_dir_events(state, [LogDirEvent(broker_id=1, broker_epoch=501, replicas=(partition_id(state),))], RULES))
    assert (partition(state).leader, partition(state).eligible) == (NO_LEADER, (2, 3))
    applied(state, decide_brokers_changed(state, [joined(3)], [], RULES))
    assert (partition(state).leader, partition(state).isr) == (3, (3,))


def partition_id(state: ClusterState) -> tuple[bytes, int]:
    topic = state.topic("t")
    assert topic is not None
    return topic.topic_id, 0


def test_a_restarted_leader_leads_under_a_new_epoch() -> None:
    """I15."""
    state = with_topic(state_of(1), (1, (1,), (1,)))
    plan = decide_brokers_changed(state, [joined(1, is_clean=False)], [], RULES)
    assert applied(state, plan) == [(1, 6, 10, (1,))]
    assert state.brokers[1].epoch == 501
    assert plan.notes == (), "there was no choice"


def test_a_restarted_broker_leaves_every_isr_of_which_it_is_not_the_last_member_and_its_leadership() -> None:
    """KIP-903: also when the broker was away for so short a time that no controller noticed."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)), (1, (1, 2), (1,)), (2, (2, 1), (2,)))
    for is_clean in (True, False):
        plan = decide_brokers_changed(state, [joined(1, is_clean=is_clean)], [], RULES)
        new = [change.partition for change in plan.changes if hasattr(change, "partition")]
        assert [(part.index, part.leader, part.leader_epoch, part.isr) for part in new] == [
            (0, 2, 6, (2,)),
            (1, 2, 5, (2,)),
            (2, 1, 6, (1,)),
        ]


def test_one_that_is_not_clean_leaves_the_eligible_as_well() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    state.apply(decide_brokers_changed(state, [], [2], TWO).changes)
    assert (partition(state).isr, partition(state).eligible) == ((1,), (2,))
    clean = decide_brokers_changed(state, [joined(2)], [], TWO)
    assert [change for change in clean.changes if hasattr(change, "partition")] == []
    state.apply(decide_brokers_changed(state, [joined(2, is_clean=False)], [], TWO).changes)
    assert (partition(state).isr, partition(state).eligible, partition(state).leader_epoch) == ((1,), (), 5)


def test_brokers_that_stopped_together_and_come_back_clean_one_by_one() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)))
    state.apply(decide_brokers_changed(state, [], [1, 2, 3], TWO).changes)
    assert (partition(state).leader, partition(state).isr) == (NO_LEADER, (1, 2, 3))
    state.apply(decide_brokers_changed(state, [joined(2)], [], TWO).changes)
    assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (2, (2,), (1, 3))


def test_brokers_that_lost_power_together_wait_for_the_last_and_its_log_may_be_short() -> None:
    """If all replicas in sync have lost their tails, none is better than the others. But as long as one is away, it may come back with its
    whole log."""
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)))
    state.apply(decide_brokers_changed(state, [], [1, 2, 3], TWO).changes)
    state.apply(decide_brokers_changed(state, [joined(1, is_clean=False)], [], TWO).changes)
    assert (partition(state).leader, partition(state).isr, partition(state).last_leader) == (NO_LEADER, (2, 3), 1)
    state.apply(decide_brokers_changed(state, [joined(2, is_clean=False)], [], TWO).changes)
    assert (partition(state).leader, partition(state).isr, partition(state).last_known) == (NO_LEADER, (3,), (1, 2))
    plan = decide_brokers_changed(state, [joined(3, is_clean=False)], [], TWO)
    state.apply(plan.changes)
    assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (3, (3,), ())
    assert partition(state).last_known == ()
    assert "the last in sync, without a proof that its log is whole" in plan.notes[0]


def test_the_last_leader_is_preferred_among_those_that_lost() -> None:
    state = with_topic(state_of(1, 2, 3), (2, (1, 2, 3), (1, 2, 3)))
    state.apply(decide_brokers_changed(state, [], [1, 2, 3], RULES).changes)
    state.apply(decide_brokers_changed(state, [joined(2, is_clean=False)], [], RULES).changes)
    assert (partition(state).leader, partition(state).isr) == (NO_LEADER, (1, 3))
    state.apply(decide_brokers_changed(state, [joined(1, is_clean=False)], [], RULES).changes)
    plan = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0)], RULES)
    state.apply(plan.changes)
    assert (partition(state).leader, partition(state).isr) == (2, (2,))
    assert plan.notes[0].startswith("unclean election: t-0 is led by broker 2")


def test_offline_replicas_follow_the_live_brokers() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    state.apply(decide_brokers_changed(state, [], [2], RULES).changes)
    assert partition(state).offline_replicas == (2,)
    state.apply(decide_brokers_changed(state, [joined(2)], [], RULES).changes)
    assert partition(state).offline_replicas == ()


# Brokers that come back with other disks


DISKS = {1: ("one",), 2: ("two", "more"), 3: ("three",)}


def noted_state(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ClusterState:
    """Returns a state of three brokers whose log directories are noted."""
    state = with_topic(state_of(1, 2, 3), *partitions)
    state.apply([BrokerEpochsNoted({1: 101, 2: 102, 3: 103}, 0, {}, DISKS)])
    return state


def back(broker_id: int, *directories: str, is_clean: bool = False) -> BrokerMetadata:
    return replace(joined(broker_id, is_clean=is_clean), directories=directories or DISKS[broker_id])


def registered_in(broker_id: int, *generations: str) -> BrokerMetadata:
    """Returns a broker that stopped cleanly, and whose directory has had these generations."""
    (directory,) = DISKS[broker_id]
    return replace(back(broker_id, is_clean=True), histories={directory: LogDirectoryHistory("/data", generations)})


def test_an_older_copy_of_a_log_directory_counts_as_a_new_disk() -> None:
    """Even if the copy says that it was closed cleanly."""
    state = noted_state((1, (1, 2, 3), (1, 2, 3)))
    state.apply(decide_brokers_changed(state, [], [1, 2, 3], TWO).changes)
    for generations in (["a"], ["a", "b"]):
        plan = decide_brokers_changed(state, [registered_in(1, *generations)], [], TWO)
        state.apply(plan.changes)
        assert plan.notes == ()
        assert (partition(state).leader, state.noted_generations) == (1, {"one": generations[-1]})
        state.apply(decide_brokers_changed(state, [], [1], TWO).changes)
    plan = decide_brokers_changed(state, [registered_in(1, "a", "c")], [], TWO)
    state.apply(plan.changes)
    assert plan.notes[0] == (
        "broker 1 has an older copy of its log directory /data (directory.id one): its logs may lack records, so they count as empty, "
        "and other replicas lead"
    )
    assert (partition(state).leader, partition(state).isr, partition(state).emptied) == (NO_LEADER, (2, 3), (1,))
    assert state.noted_generations == {"one": "c"}, "the partitions' states take the loss into account"
    state.apply(decide_brokers_changed(state, [back(3, is_clean=True)], [], TWO).changes)
    assert partition(state).leader == 3


def test_a_directory_without_generations_is_accepted_until_they_are_known() -> None:
    """Brokers of earlier versions register no generations, and their directories are accepted. A directory that has lost its file of
    generations starts another list, which lacks the noted generation, so it is taken for an older copy."""
    state = noted_state((1, (1, 2, 3), (1, 2, 3)))
    assert state.noted_generations == {}
    state.apply(decide_brokers_changed(state, [registered_in(1, "a")], [], TWO).changes)
    state.apply(decide_brokers_changed(state, [back(1, is_clean=True)], [], TWO).changes)
    state.apply(decide_brokers_changed(state, [replace(registered_in(1), is_clean=True)], [], TWO).changes)
    assert state.noted_generations == {"one": "a"}
    plans = [decide_brokers_changed(state, [registered_in(1, *names)], [], TWO) for names in (["b"], ["a", "b"])]
    assert [bool(plan.notes) for plan in plans] == [True, False]


def test_one_by_one_after_a_loss_of_power_with_a_new_disk_and_that_one_leads_nothing() -> None:
    for order in permutations((1, 2, 3)):
        state = noted_state((1, (1, 2, 3), (1, 2, 3)))
        state.apply(decide_brokers_changed(state, [], [1, 2, 3], TWO).changes)
        for broker_id in order:
            assert partition(state).leader == NO_LEADER
            come = back(1, "new") if broker_id == 1 else back(broker_id)
            plan = decide_brokers_changed(state, [come], [], TWO)
            state.apply(plan.changes)
        expected = order[2] if order[2] != 1 else 2
        assert (partition(state).leader, partition(state).isr) == (expected, (expected,)), order
        assert "which was the last in sync, without a proof" in plan.notes[0]
        assert (partition(state).last_known, partition(state).emptied) == ((), ())


def test_the_last_in_sync_with_a_new_disk_waits_for_the_operator() -> None:
    """The records of the other replicas are kept, and no restart makes the empty replica lead."""
    state = noted_state((1, (1, 2, 3), (1,)))
    state.apply(decide_brokers_changed(state, [], [1], RULES).changes)
    plan = decide_brokers_changed(state, [back(1, "new")], [], RULES)
    state.apply(plan.changes)
    assert (partition(state).leader, partition(state).isr, partition(state).emptied) == (NO_LEADER, (), (1,))
    assert plan.notes == (
        "no election: t-0 has no leader, because brokers [1], the last in sync, lack records that they had; "
        "an unclean election lets another replica lead",
    )
    for again in (back(1, "new", is_clean=True), back(2), back(3, is_clean=True)):
        state.apply(decide_brokers_changed(state, [again], [], RULES).changes)
        assert partition(state).leader == NO_LEADER
    state.apply(decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0)], RULES).changes)
    assert (partition(state).leader, partition(state).isr, partition(state).emptied) == (2, (2,), ())


def test_a_new_disk_is_not_elected_over_an_eligible_replica_nor_waited_for() -> None:
    state = noted_state((1, (1, 2, 3), (1, 2)))
    state.apply(decide_brokers_changed(state, [], [2], TWO).changes)
    state.apply(decide_brokers_changed(state, [], [1], TWO).changes)
    assert (partition(state).isr, partition(state).eligible) == ((1,), (2,))
    state.apply(decide_brokers_changed(state, [back(1, "new", is_clean=True)], [], TWO).changes)
    assert (partition(state).leader, partition(state).isr) == (NO_LEADER, (2,)), "whatever its own directory says"
    state.apply(decide_brokers_changed(state, [back(2)], [], TWO).changes)
    assert (partition(state).leader, partition(state).isr) == (2, (2,))


def test_a_leader_whose_session_outlasts_its_disk() -> None:
    """The other brokers come back while the leader still seems alive, so they leave the in-sync set one after the other. If nothing was
    acknowledged since, the last of them has all records and may lead."""
    for rules, leader in ((TWO, 3), (RULES, NO_LEADER)):
        state = noted_state((1, (1, 2, 3), (1, 2, 3)))
        for come in (back(2), back(3)):
            state.apply(decide_brokers_changed(state, [come], [], rules).changes)
        assert (partition(state).leader, partition(state).isr, partition(state).eligible) == (1, (1,), ())
        assert partition(state).last_known == ((3,) if rules is TWO else ())
        state.apply(decide_brokers_changed(state, [], [1], rules).changes)
        state.apply(decide_brokers_changed(state, [back(1, "new")], [], rules).changes)
        assert (partition(state).leader, partition(state).emptied) == (leader, () if leader == 3 else (1,))


def test_who_was_eligible_is_forgotten_when_enough_are_in_sync_again() -> None:
    state = noted_state((1, (1, 2, 3), (1, 2)))
    state.apply(decide_brokers_changed(state, [back(2)], [], TWO).changes)
    assert (partition(state).isr, partition(state).last_known) == ((1,), (2,))
    state.apply(decide_last_known(state, RULES).changes)
    assert partition(state).last_known == ()
    state.apply(decide_brokers_changed(state, [], [1], TWO).changes)
    state.apply(decide_brokers_changed(state, [back(1)], [], TWO).changes)
    assert partition(state).leader == 1, "unproved, and the last in sync"
    away = noted_state((1, (1, 2, 3), (1, 2, 3)))
    away.apply(decide_brokers_changed(away, [], [1, 2, 3], TWO).changes)
    away.apply(decide_brokers_changed(away, [back(1)], [], TWO).changes)
    assert (partition(away).isr, partition(away).last_known) == ((2, 3), (1,))
    assert not decide_last_known(away, TWO).changes, "while no broker leads the size of the in-sync set says nothing"


def test_where_every_replica_came_back_empty_nothing_is_left_to_wait_for() -> None:
    state = noted_state((2, (1, 2), (1, 2)), (3, (3,), (3,)))
    state.apply(decide_brokers_changed(state, [], [1, 2, 3], RULES).changes)
    state.apply(decide_brokers_changed(state, [back(2, "new")], [], RULES).changes)
    assert (partition(state).leader, partition(state).emptied) == (NO_LEADER, (2,))
    plan = decide_brokers_changed(state, [back(1, "newer"), back(3, "newest")], [], RULES)
    state.apply(plan.changes)
    assert [(part.leader, part.isr) for part in (partition(state), partition(state, 1))] == [(1, (1,)), (3, (3,))]
    assert "which was as empty as all other replicas" in plan.notes[0]


def test_one_of_two_disks_is_new_and_a_broker_with_all_of_its_own_is_preferred() -> None:
    state = noted_state((2, (2, 3), (2, 3)), (2, (2, 3), (2,)))
    state.apply(decide_brokers_changed(state, [], [2, 3], RULES).changes)
    state.apply(decide_brokers_changed(state, [back(2, "two", "new"), back(3)], [], RULES).changes)
    assert partition(state).leader == 3
    assert partition(state, 1).leader == 2, "it may have this one still, and the others lack some"


def test_what_is_noted_of_directories_outlasts_the_broker_and_follows_it() -> None:
    state = noted_state()
    state.apply(decide_brokers_changed(state, [], [1, 2], RULES).changes)
    assert state.noted_directories == DISKS
    state.apply(decide_brokers_changed(state, [back(2, "two")], [], RULES).changes)
    assert state.noted_directories == {**DISKS, 2: ("two",)}
    state.apply(decide_brokers_changed(state, [joined(2)], [], RULES).changes)
    assert state.noted_directories == {**DISKS, 2: ("two",)}, "a registration that names none says nothing"


# Which epochs the states take into account


def test_the_epochs_are_noted_after_the_states_and_not_for_a_broker_that_is_alone() -> None:
    state = with_topic(state_of(1), (1, (1, 2), (1, 2)))
    alone = decide_brokers_changed(state, [joined(1)], [], RULES)
    assert all(operation.path != znodes.BROKER_EPOCHS for operation in alone.operations)
    plan = decide_brokers_changed(state, [joined(2)], [], RULES)
    assert plan.operations[-1] == Create(znodes.BROKER_EPOCHS, znodes.broker_epochs_bytes({1: 101, 2: 502}, {}))
    state.apply(plan.changes)
    assert (state.noted_epochs, state.noted_version) == ({1: 101, 2: 502}, 0)
    plan = decide_brokers_changed(state, [], [2], RULES)
    assert plan.operations[-1] == Set(znodes.BROKER_EPOCHS, znodes.broker_epochs_bytes({1: 101}, {}), 0)
    state.apply(plan.changes)
    assert decide_brokers_changed(state, [], [], RULES) == Plan()


def test_damaged_epochs_are_not_written_over() -> None:
    """The controller keeps the epochs in its own state only."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)))
    state.apply([BrokerEpochsNoted({}, None)])
    assert [broker.broker_id for broker in restarted_brokers(state, 1, is_own_new=False)] == [1, 2]
    plan = decide_brokers_changed(state, [joined(2), joined(3)], [], RULES)
    assert all(operation.path != znodes.BROKER_EPOCHS for operation in plan.operations)
    state.apply(plan.changes)
    assert (state.noted_epochs, state.noted_version) == ({1: 101, 2: 502, 3: 503}, None)
    assert restarted_brokers(state, 1, is_own_new=False) == []


def test_a_new_controller_finds_who_restarted_by_the_noted_epochs() -> None:
    """A broker that restarts while a new controller is elected must not seem to have run all the time."""
    state = state_of(1, 2, 3)
    state.apply([BrokerEpochsNoted({1: 101, 2: 77, 4: 104}, 3)])
    assert [broker.broker_id for broker in restarted_brokers(state, 1, is_own_new=False)] == [2, 3]
    assert [broker.broker_id for broker in restarted_brokers(state_of(1, 2), 1, is_own_new=False)] == [1, 2], "nothing is noted"
    assert [broker.broker_id for broker in restarted_brokers(state_of(1), 1, is_own_new=True)] == [1]
    assert restarted_brokers(state_of(1), 1, is_own_new=False) == []


def test_a_broker_that_is_provably_gone_is_marked_while_its_registration_stands() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)))
    plan = decide_brokers_changed(state, [], [1], RULES, {1: 101})
    assert plan.operations[-1] == Create(znodes.BROKER_EPOCHS, znodes.broker_epochs_bytes({2: 102, 3: 103}, {1: 101}))
    assert applied(state, plan) == [(2, 6, 10, (2,))]
    assert (state.dead, 1 in state.brokers) == ({1: 101}, False)
    state.apply(decide_brokers_changed(state, [], [3], RULES).changes)
    assert state.dead == {1: 101}
    state.apply(decide_brokers_changed(state, [joined(1)], [], RULES).changes)
    assert state.dead == {}, "it has registered anew"


# Controlled shutdown


def test_controlled_shutdown_hands_over_what_others_can_lead() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (1, (1, 2), (1,)), (2, (2, 1), (2, 1)), (1, (1,), (1,)))
    plan = decide_controlled_shutdown(state, 1, 101, RULES)
    assert plan.answer == (ErrorCode.NONE, [("t", 1)]), "2 may come into sync; for the last one there is no other replica"
    assert applied(state, plan) == [(2, 6, 10, (2,)), (1, 5, 9, (1,)), (2, 5, 10, (2,)), (1, 5, 9, (1,))]


def test_a_replica_that_stops_stays_eligible_below_the_minimum() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)))
    state.apply(decide_controlled_shutdown(state, 1, 101, TWO).changes)
    assert [(part.leader, part.isr, part.eligible) for part in (partition(state), partition(state, 1))] == [(2, (2,), (1,))] * 2


def test_a_leaving_broker_is_elected_nowhere_until_it_registers_anew() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2), (1, 2)), (3, (2, 3), (2, 3)))
    state.apply(decide_controlled_shutdown(state, 2, 102, RULES).changes)
    assert (state.leaving, partition(state).isr, partition(state, 1).isr) == ({2: 102}, (1,), (3,))
    state.apply([BrokerLeaving(3, 103)])
    assert applied(state, decide_controlled_shutdown(state, 3, 103, RULES))[1] == (3, 5, 10, (3,))
    assert decide_controlled_shutdown(state, 3, 103, RULES).answer == (ErrorCode.NONE, []), "the other replica is leaving as well"
    state.apply(decide_brokers_changed(state, [joined(2)], [3], RULES).changes)
    assert state.leaving == {}


def test_two_that_stop_at_once_do_not_hand_over_to_each_other() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2, 3)))
    state.apply([BrokerLeaving(2, 102)])
    assert applied(state, decide_controlled_shutdown(state, 1, 101, RULES)) == [(3, 6, 10, (3,))]


def test_controlled_shutdown_of_an_earlier_incarnation() -> None:
    """P4, KIP-380."""
    plan = decide_controlled_shutdown(state_of(1), 1, 99, RULES)
    assert plan == Plan(answer=(ErrorCode.STALE_BROKER_EPOCH, []))
