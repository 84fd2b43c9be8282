"""The failures that KIPs (Kafka Improvement Proposals) describe, step by step, on production nodes over a model of ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.errors import ErrorCode
from ottla.cluster.control.inbox import NO_SEQUENCE
from ottla.controller.api import AlterPartitionDone, IsrChangeRequest, PartitionResult, Reassignment
from ottla.replication.isr import IsrPhase
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from ottla.wire.messages.stop_replica import StopReplicaRequest
from tests.cluster.nodes import Nodes, content


def state(world: Nodes) -> PartitionMetadata:
    partition = world.nodes[world.controller_id].controller.state.partition("t", 0)
    assert partition is not None
    return partition


def last_known(world: Nodes, asked: int) -> list[int]:
    """Returns the last known eligible leader as this broker describes it."""
    answer = world.ask(asked, DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    return list(answer.topics[0].partitions[0].last_known_elr)


def has_a_leader(world: Nodes) -> bool:
    return any(node.controller.is_active for node in world.nodes.values()) and state(world).leader >= 0


def record_control(world: Nodes, broker_id: int) -> list[Any]:
    """Returns a list that gets the controllers' messages to the broker from now on, so that a test can deliver one a second time, and
    late."""
    requests: list[Any] = []
    control: Any = world.nodes[broker_id].broker.control
    take = control.take

    def recorded(request: Any, done: Any) -> None:
        requests.append(request)
        take(request, done)

    control.take = recorded
    return requests


def arrive_again(world: Nodes, broker_id: int, request: Any, *, is_numbered: bool = False) -> ErrorCode:
    """Delivers a control request to the broker once more, and returns the error code. The sequence number of our controllers' messages
    alone would cause a refusal; without that number (`is_numbered` False) the epochs must cause it."""
    answers: list[ErrorCode] = []
    request.sequence = request.sequence if is_numbered else NO_SEQUENCE
    control: Any = world.nodes[broker_id].broker.control
    control.take(request, answers.append)
    world.until(lambda: answers)
    return answers[0]


def test_kip_101_a_restart_and_the_leaders_failure_right_after_it_lose_nothing() -> None:
    """Scenario 1. The second record is acknowledged, but B does not know that yet when it restarts. The leader A dies before B has fetched
    again, and B leads. Had it cut its log to the watermark that it knew, the record would be gone."""
    world = Nodes(3, knows_boots=True)
    world.create("t", [2, 3], min_insync_replicas="2")
    world.write("m1")
    world.until(lambda: world.replica(3).high_watermark == 1)
    world.write("m2")
    world.until(lambda: world.replica(2).high_watermark == 2)
    assert (world.replica(3).high_watermark, world.replica(3).log.log_end_offset) == (1, 2)
    kept = content(world.replica(2))
    world.kill_process(3).expire()
    world.start(3, is_awaited=False)
    world.until(lambda: world.nodes[3].partitions.get("t", 0) is not None and world.replica(3).leader_id == 2)
    world.nodes[3].links.fetchers.close()
    world.kill(2)
    world.until(lambda: world.replica(3).is_leading)
    assert content(world.replica(3)) == kept


def test_kip_101_after_hard_failures_of_both_a_new_record_takes_the_place_of_a_lost_one_in_both_logs() -> None:
    """Scenario 2. Both lose their power, A with m2 on its disk, B without it. B leads, and writes m3 at the offset of m2. A has as many
    records as B, so by offsets alone nothing seems to be wrong with it; by epochs its m2 goes."""
    world = Nodes(3)
    world.create("t", [2, 3], unclean_leader_election_enable="true")
    world.write("m1")
    world.until(lambda: world.replica(3).high_watermark == 1)
    world.disks[3].write_back()
    world.write("m2")
    world.until(lambda: world.replica(3).log.log_end_offset == 2)
    world.disks[2].write_back()
    world.kill(2)
    world.kill(3, keeps_some=False)
    world.start(3)
    world.until(lambda: 3 in world.nodes and world.replica(3).is_leading)
    assert world.replica(3).log.log_end_offset == 1
    world.write("m3")
    world.start(2)
    world.until(lambda: 2 in world.replica(3).isr)
    assert world.replica(2).log.log_end_offset == 2
    assert b"m3" in content(world.replica(2)) == content(world.replica(3))


def left_alone() -> Nodes:
    """Returns a cluster with one record on both replicas. Then broker 2 leads alone, and its new records are not on broker 3. Either broker
    may lead next."""
    world = Nodes(3)
    world.create("t", [2, 3], unclean_leader_election_enable="true")
    world.write("on both")
    world.until(lambda: world.replica(3).high_watermark == 1)
    world.disks[3].write_back()
    world.kill_process(3).expire()
    world.until(lambda: world.replica(2).isr == (2,))
    return world


def test_kip_279_histories_that_parted_twice_meet_again_at_the_largest_epoch_that_both_know() -> None:
    """A writes alone in its epoch; B leads without having it, and writes alone; A leads again before B was its follower. B ends in an epoch
    that A never knew: A answers with the one before, which in A's log ends higher than in B's."""
    world = left_alone()
    world.write("a1", "a2")
    world.write("a3")
    world.disks[2].write_back()
    world.kill_process(2).expire()
    world.start(3)
    world.until(lambda: world.replica(3).is_leading)
    world.write("b1")
    world.write("b2")
    lost_epoch = world.replica(3).leader_epoch
    world.disks[3].write_back()
    world.kill_process(3).expire()
    world.start(2)
    world.until(lambda: world.replica(2).is_leading)
    world.write("a4")
    assert lost_epoch not in [epoch for epoch, _start in world.replica(2).log.epochs.entries()]
    world.start(3)
    world.until(lambda: 3 in world.replica(2).isr)
    kept = content(world.replica(3))
    assert kept == content(world.replica(2)) and b"a3" in kept and b"b1" not in kept and world.replica(3).log.log_end_offset == 5


def ask_end_of_epoch(world: Nodes, broker_id: int, *, epoch: int, current: int) -> tuple[int, int, int]:
    """Asks, as a consumer, where the epoch of its last record ends. Returns error, epoch and end offset."""
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    answer = world.ask(broker_id, OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])]))
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def fetch_as_consumer(world: Nodes, broker_id: int, offset: int, *, current: int, last_fetched: int = -1) -> Any:
    partition = FetchPartition(
        partition=0, current_leader_epoch=current, fetch_offset=offset, last_fetched_epoch=last_fetched, partition_max_bytes=1 << 20
    )
    topic = FetchTopic(topic_id=world.replica(broker_id).topic_id, partitions=[partition])
    return world.ask(broker_id, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])).responses[0].partitions[0]


def test_kip_320_a_consumer_learns_that_what_it_has_read_was_cut() -> None:
    """It has read three records of A. B, which has the first alone, is elected uncleanly and writes as many others, so that the consumer's
    offset exists again. Its fetch with the old epoch is fenced; with the new one it learns where its history ends."""
    world = left_alone()
    world.write("read", "read too")
    read = world.replica(2).leader_epoch
    seen = fetch_as_consumer(world, 2, 0, current=read)
    assert (seen.error_code, seen.high_watermark) == (ErrorCode.NONE, 3)
    assert fetch_as_consumer(world, 2, 3, current=read + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    world.kill(2)
    world.start(3)
    world.until(lambda: world.replica(3).is_leading)
    world.write("other", "others", "more")
    now = world.replica(3).leader_epoch
    assert fetch_as_consumer(world, 3, 3, current=read).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask_end_of_epoch(world, 3, epoch=read, current=read)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask_end_of_epoch(world, 3, epoch=read, current=now + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    error, epoch, end = ask_end_of_epoch(world, 3, epoch=read, current=now)
    assert (error, epoch, end) == (ErrorCode.NONE, read, 1), "its records of that epoch from 1 on are no more"
    diverging = fetch_as_consumer(world, 3, 3, current=now, last_fetched=read)
    assert (diverging.error_code, diverging.diverging_epoch.end_offset) == (ErrorCode.NONE, 1) and not diverging.records


def test_kip_380_what_was_sent_to_a_broker_before_it_restarted_changes_nothing() -> None:
    """The LeaderAndIsr that made the broker a leader comes once more, to its next incarnation, which follows. And a controlled shutdown
    that was asked for in its former life takes no leadership from this one."""
    world = Nodes(3)
    requests = record_control(world, 3)
    world.create("t", [3, 2])
    world.write("a")
    world.until(lambda: world.replica(2).high_watermark == 1)
    before = world.nodes[world.controller_id].controller.state.brokers[3].epoch
    (old,) = [request for request in requests if isinstance(request, LeaderAndIsrRequest) and request.topic_states]
    world.disks[3].write_back()
    world.kill_process(3).expire()
    world.start(3)
    world.until(lambda: 3 in world.replica(2).isr and world.replica(3).leader_id == 2)
    assert arrive_again(world, 3, old) is ErrorCode.STALE_BROKER_EPOCH
    assert world.replica(3).leader_id == 2 and not world.replica(3).is_leading
    preferred = ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    world.ask(world.controller_id, preferred)
    world.until(lambda: world.replica(3).is_leading)
    answers: list[Any] = []
    world.nodes[world.controller_id].controller.controlled_shutdown(3, before, lambda code, rest: answers.append(code))
    world.until(lambda: answers)
    world.settle()
    assert answers == [ErrorCode.STALE_BROKER_EPOCH] and world.replica(3).is_leading


class LateIsrChanges:
    """Stands between a leader's broker and the controller: requests wait until the test lets them pass, and answers can be lost."""

    def __init__(self, world: Nodes, broker_id: int) -> None:
        changes = world.nodes[broker_id].links.isr_changes
        self._controller = changes.controller
        self.waiting: list[Callable[[], None]] = []
        self.answers: list[tuple[ErrorCode, list[ErrorCode]]] = []
        self.is_open = False
        self.answers_to_lose = 0
        changes.controller = self

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChangeRequest], done: AlterPartitionDone) -> None:
        def answered(code: ErrorCode, results: Sequence[PartitionResult]) -> None:
            self.answers.append((code, [result.error for result in results]))
            if self.answers_to_lose:
                self.answers_to_lose -= 1
                done(ErrorCode.NETWORK_EXCEPTION, [])
            else:
                done(code, results)

        def ask() -> None:
            self._controller.alter_partition(broker_id, broker_epoch, changes, answered)

        if self.is_open:
            ask()
        else:
            self.waiting.append(ask)

    def let_through(self) -> None:
        self.is_open = True
        waiting, self.waiting = self.waiting, []
        for ask in waiting:
            ask()


def without_broker_3(world: Nodes) -> None:
    """Ends the process of broker 3 and waits until it has left the in-sync set, in which broker 2 is alone then."""
    world.disks[3].write_back()
    world.kill_process(3).expire()
    world.until(lambda: world.replica(2).isr == (2,))


def test_kip_497_a_replica_counts_from_the_proposal_on_and_a_lost_answer_changes_nothing() -> None:
    """The leader proposes that B is in sync again. It does not know when the controller has written that, so the watermark waits for B from
    then on. The answer is lost: the leader asks again, learns that its request was carried out, and nothing is written twice."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("a")
    world.until(lambda: world.replica(2).high_watermark == 1)
    without_broker_3(world)
    before = state(world).partition_epoch
    late = LateIsrChanges(world, 2)
    late.answers_to_lose = 1
    world.start(3, is_awaited=False)
    world.until(lambda: late.waiting)
    assert world.replica(2).isr_state.phase is IsrPhase.PENDING_EXPAND and state(world).isr == (2,)
    world.nodes[3].links.fetchers.close()
    world.settle(100)
    world.write("waits for B")
    world.settle(100)
    assert (world.replica(2).high_watermark, world.replica(2).log.log_end_offset) == (1, 2)
    late.let_through()
    world.until(lambda: state(world).isr == (2, 3))
    world.until(lambda: world.replica(2).isr == (2, 3) and world.replica(2).isr_state.phase is IsrPhase.COMMITTED)
    assert state(world).partition_epoch == before + 1 and world.replica(2).high_watermark == 1
    world.until(lambda: world.replica(2).isr == (2,), 120_000)
    assert world.replica(2).high_watermark == 2


def test_kip_903_a_replica_that_lost_its_log_after_it_was_proposed_does_not_join() -> None:
    """B is out of the in-sync set and catches up; the leader proposes it. While that is on its way, B ends, its disk is replaced, and it
    registers again. B's log is empty: if B joined the in-sync set, a failure of the leader would lose all records."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("a", "b")
    world.until(lambda: world.replica(2).high_watermark == 2)
    without_broker_3(world)
    late = LateIsrChanges(world, 2)
    world.start(3, is_awaited=False)
    world.until(lambda: late.waiting)
    world.kill(3)
    world.replace_disk(3)
    world.start(3)
    world.nodes[3].links.fetchers.close()
    assert state(world).isr == (2,)
    late.let_through()
    world.until(lambda: late.answers)
    assert late.answers[0] == (ErrorCode.NONE, [ErrorCode.INELIGIBLE_REPLICA])
    world.settle()
    assert state(world).isr == (2,) and state(world).leader == 2


def begin_move(world: Nodes, *replicas: int) -> None:
    controller = world.nodes[world.controller_id].controller
    controller.alter_reassignments([Reassignment(topic="t", partition=0, replicas=list(replicas))], lambda _results: None)


def test_kip_570_a_stop_of_a_replica_that_comes_after_it_was_assigned_again_deletes_nothing() -> None:
    """B's replica is moved away, which stops and deletes it, and then assigned to B again. The StopReplica comes once more, late."""
    world = Nodes(4)
    world.create("t", [2, 3])
    world.write("a")
    world.until(lambda: world.replica(3).high_watermark == 1)
    requests = record_control(world, 3)
    begin_move(world, 2, 4)
    world.until(lambda: world.nodes[3].partitions.get("t", 0) is None)
    stops = [request for request in requests if isinstance(request, StopReplicaRequest)]
    begin_move(world, 2, 3)
    world.until(lambda: world.nodes[3].partitions.get("t", 0) is not None)
    assert [arrive_again(world, 3, stop, is_numbered=True) for stop in stops] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    stopped_in = stops[0].topic_states[0].partition_states[0].leader_epoch
    world.until(lambda: world.replica(3).leader_epoch == state(world).leader_epoch > stopped_in)
    assert arrive_again(world, 3, stops[0]) is ErrorCode.NONE
    world.write("b")
    world.until(lambda: world.replica(3).high_watermark == 2)
    assert content(world.replica(3)) == content(world.replica(2)) and set(state(world).isr) == {2, 3}


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
    assert [last_known(world, asked) for asked in (1, 2)] == [[2], [2]]
    world.start(3)
    world.until(lambda: has_a_leader(world))
    world.until(lambda: [last_known(world, asked) for asked in (1, 2, 3)] == [[], [], []])
    assert world.replica(3).is_leading and world.replica(3).log.log_end_offset == 1
    world.until(lambda: 2 in world.replica(3).isr)
    assert content(world.replica(2)) == content(world.replica(3))


def test_kip_903_a_broker_that_restarts_unnoticed_is_in_no_in_sync_set() -> None:
    """The controller has no connection to ZooKeeper just then, so for it the broker has never been away."""
    world = Nodes(3)
    world.create("t", [2, 3])
    world.write("a")
    world.until(lambda: world.replica(2).high_watermark == 1)
    before = state(world)
    store: Any = world.nodes[world.controller_id].ports.store
    store.disconnect()
    world.kill(3)
    world.start(3, is_awaited=False)
    world.settle(500)
    assert state(world) == before and "3" in world.model.tree.children("/brokers/ids")
    store.reconnect()
    world.until(lambda: state(world).partition_epoch >= before.partition_epoch + 2 and 3 in state(world).isr)
    assert state(world).leader_epoch == before.leader_epoch, "its leader stayed"
    assert content(world.replica(3)) == content(world.replica(2))


def without_power(world: Nodes, *replaced: int) -> None:
    """Cuts the power of all computers at once, after all data is on the disks. The brokers `replaced` get a new disk."""
    for broker_id in list(world.nodes):
        world.disks[broker_id].write_back()
        world.kill(broker_id, keeps_some=False)
    for broker_id in replaced:
        world.replace_disk(broker_id)


@pytest.mark.parametrize("order", [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)])
@pytest.mark.parametrize("is_together", [False, True])
def test_kip_966_after_a_power_failure_of_all_a_new_disk_leads_nothing_that_others_hold(order: Sequence[int], is_together: bool) -> None:
    """No log is proved to be whole, but each has all records. The last leader's disk is replaced."""
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
    """min.insync 1. C had fallen behind, so A was alone in sync, and A's disk is replaced. C's records are not given up for an empty log:
    the partition waits until an operator lets C lead."""
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
