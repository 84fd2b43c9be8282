"""Replicas whose logs have failed: they lose leadership, leave the in-sync set, are shown as offline, and come back when their logs work
again (I44)."""

from __future__ import annotations

from dataclasses import replace

from ottla.base.cluster_metadata import NO_LEADER, PartitionMetadata, PartitionPut
from ottla.base.errors import ErrorCode
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import Create
from ottla.controller.api import ElectionType
from ottla.controller.log_dir_events import LogDirWatch, decide_log_dir_events
from ottla.controller.machine import decide_alter_partition, decide_elect_leaders
from ottla.controller.membership import decide_brokers_changed
from ottla.controller.plans import Plan
from ottla.controller.state import ClusterState
from ottla.metadata_store import znodes
from ottla.metadata_store.log_dir_nodes import LogDirEvent, ShortLeader, log_dir_event_bytes, read_log_dir_event
from tests.controller.cluster import TOPIC_ID, Rules, applied, isr_change, joined, state_of, with_topic
from tests.fakes.memory_store import MemoryStore
from tests.fakes.timers import ManualTimers

RULES = Rules(in_sync_min=2)


def event(broker_id: int, *partitions: int, epoch: int | None = None) -> LogDirEvent:
    return LogDirEvent(
        broker_id=broker_id,
        broker_epoch=100 + broker_id if epoch is None else epoch,
        replicas=tuple((TOPIC_ID, partition) for partition in partitions),
    )


def partition(state: ClusterState, index: int = 0) -> PartitionMetadata:
    found = state.partition("t", index)
    assert found is not None
    return found


def test_a_failed_replica_leads_nothing_and_is_not_eligible() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (1, (1, 2), (1, 2)), (2, (1, 2), (1, 2)), (1, (1, 2), (1,)))
    after = applied(state, decide_log_dir_events(state, [event(1, 0, 2, 3, 99)], RULES))
    assert after == [(2, 6, 10, (2,)), (1, 5, 9, (1, 2)), (2, 5, 10, (2,)), (NO_LEADER, 6, 10, (1,))]
    assert [partition(state, index).offline_replicas for index in range(4)] == [(1,), (), (1,), (1,)]
    assert partition(state).eligible == ()
    asked = isr_change([(2, 102), (1, 101)], leader_epoch=6, partition_epoch=10)
    assert decide_alter_partition(state, 2, 102, [asked], RULES).answer[1][0].error is ErrorCode.INELIGIBLE_REPLICA
    refused = decide_elect_leaders(state, ElectionType.PREFERRED, [("t", 0)], RULES).answer[0].error
    assert refused is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert applied(state, decide_brokers_changed(state, [], [2], RULES))[0] == (NO_LEADER, 7, 11, (2,)), "the failed one does not lead"


def test_an_operator_who_accepts_the_loss_gets_a_damaged_leader_where_no_other_replica_lives() -> None:
    state = with_topic(state_of(1, 2, 3), (2, (1, 2, 3), (2, 3)), (2, (1, 2, 3), (2,)))
    state.apply(decide_log_dir_events(state, [event(1, 0), event(2, 0, 1), event(3, 0)], RULES).changes)
    before = partition(state)
    assert (before.leader, before.isr) == (NO_LEADER, (2, 3))
    plan = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0), ("t", 1)], RULES)
    assert [result.error for result in plan.answer] == [ErrorCode.NONE, ErrorCode.NONE]
    state.apply(plan.changes)
    damaged, healthy = partition(state), partition(state, 1)
    assert (damaged.leader, damaged.isr, damaged.loss_epoch) == (2, (2,), damaged.leader_epoch), "the last leader"
    assert damaged.offline_replicas == (1, 3), "it may open its log now"
    assert healthy.leader == 1, "one that works goes before one that is damaged"
    again = applied(state, decide_log_dir_events(state, [event(2, 0, 1)], RULES))
    assert again[0][0] == NO_LEADER, "its log could not be opened after all"


def test_one_that_works_again_may_lead() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    state.apply(decide_log_dir_events(state, [event(1, 0)], RULES).changes)
    assert applied(state, decide_log_dir_events(state, [event(1)], RULES)) == [(1, 7, 11, (1,))]
    assert state.failed == {} and partition(state).offline_replicas == ()


def test_a_log_that_was_opened_again_begins_a_new_term_though_its_failure_was_never_reported() -> None:
    """I15: the log may have lost its tail, so the broker must not go on in the epoch in which it led."""
    state = with_topic(state_of(1, 2), (1, (1, 2), (1, 2)), (1, (1, 2), (1,)), (2, (1, 2), (1, 2)))
    reopened = LogDirEvent(broker_id=1, broker_epoch=101, replicas=(), reopened=tuple((TOPIC_ID, index) for index in range(3)))
    after = applied(state, decide_log_dir_events(state, [reopened], RULES))
    assert after == [(2, 6, 10, (2,)), (1, 6, 10, (1,)), (2, 5, 10, (2,))]
    assert partition(state).eligible == () and state.failed == {}
    assert read_log_dir_event(log_dir_event_bytes(reopened)) == reopened


def test_what_failed_in_one_life_of_a_broker_says_nothing_of_the_next() -> None:
    state = with_topic(state_of(1, 2), (1, (1, 2), (1,)))
    state.apply(decide_log_dir_events(state, [event(1, 0)], RULES).changes)
    assert applied(state, decide_brokers_changed(state, [joined(1)], [], RULES)) == [(1, 7, 11, (1,))]
    assert state.failed == {}
    assert decide_log_dir_events(state, [event(1, 0), event(7, 0, epoch=1)], RULES) == Plan()


def test_reports_are_read_in_order_decided_once_and_deleted() -> None:
    store = MemoryStore()
    store.put(znodes.LOG_DIR_EVENTS, b"")
    found: list[list[LogDirEvent]] = []

    def on_events(events: list[LogDirEvent], decided: object) -> None:
        found.append(events)
        assert callable(decided)
        decided()

    watch = LogDirWatch(store, StoreRetries(store, ManualTimers()), on_events)
    watch.start()
    for data in (log_dir_event_bytes(event(1, 0, 4)), b"garbage", b'{"version":1,"broker":2,"event":1}'):
        store.multi([Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", data, is_sequential=True)], lambda _outcome: None)
    named = [events for events in found if events]
    assert named == [[event(1, 0, 4)], [LogDirEvent(broker_id=2, broker_epoch=-1, replicas=())]]
    assert [path for path in store.nodes() if path.startswith(f"{znodes.LOG_DIR_EVENTS}/")] == []
    watch.stop()
    store.multi([Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", b"{}", is_sequential=True)], lambda _outcome: None)
    assert [events for events in found if events] == named


def short(follower: int, leader: int, leader_epoch: int) -> LogDirEvent:
    found = ShortLeader(topic_id=TOPIC_ID, partition=0, leader=leader, leader_epoch=leader_epoch)
    return LogDirEvent(broker_id=follower, broker_epoch=100 + follower, replicas=(), short=(found,))


def test_a_leader_that_lacks_records_is_followed_by_an_eligible_replica() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1,)))
    state.apply([PartitionPut("t", replace(partition(state), eligible=(2,)))])
    report = short(2, 1, 5)
    assert read_log_dir_event(log_dir_event_bytes(report)) == report
    plan = decide_log_dir_events(state, [report], RULES)
    assert any("lacks records below the high watermark of broker 2" in note for note in plan.notes)
    assert applied(state, plan) == [(2, 6, 10, (2,))]
    assert partition(state).eligible == () and partition(state).loss_epoch == -1
    assert decide_log_dir_events(state, [report], RULES) == Plan(), "a report of an earlier epoch"


def test_a_leader_that_fetched_its_log_from_a_short_one_is_not_followed_by_that_one() -> None:
    """Broker 3 is not in sync and has more records than brokers 1 and 2. These two must not be elected in turn for ever."""
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1, 2)))
    assert applied(state, decide_log_dir_events(state, [short(3, 1, 5)], RULES)) == [(2, 6, 10, (2,))]
    state.apply([PartitionPut("t", replace(partition(state), isr=(1, 2)))])
    plan = decide_log_dir_events(state, [short(3, 2, 6)], RULES)
    assert applied(state, plan) == [(NO_LEADER, 7, 11, ())]
    assert any("no election" in note for note in plan.notes)
    assert applied(state, decide_brokers_changed(state, [joined(1)], [], RULES))[0][0] == NO_LEADER
    elected = decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0)], RULES)
    assert applied(state, elected)[0][0] == 3, "the replica that holds more"
    assert partition(state).loss_epoch == partition(state).leader_epoch


def test_without_another_replica_the_partition_waits_for_the_operator() -> None:
    state = with_topic(state_of(1, 2, 3), (1, (1, 2, 3), (1,)))
    assert applied(state, decide_log_dir_events(state, [short(3, 1, 5)], RULES)) == [(NO_LEADER, 6, 10, ())]
    assert (partition(state).emptied, partition(state).last_leader) == ((1,), 3)
    applied(state, decide_elect_leaders(state, ElectionType.UNCLEAN, [("t", 0)], RULES))
    assert (partition(state).leader, partition(state).loss_epoch) == (3, 7)
    assert znodes.read_partition(0, znodes.partition_bytes(partition(state)), 1).loss_epoch == 7
