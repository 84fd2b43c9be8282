"""Coordinators in a cluster: markers and verifications go to other brokers, and acknowledged results survive the death of the
coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.machine import host
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch
from tests.cluster.nodes import Nodes

TXN_ID, GROUP = "tx", "g"
SETTINGS = (
    "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=3", "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=1", "ottla.flush.on.ack=true",
)  # fmt: skip
SHARE_SETTINGS = (
    "share.coordinator.state.topic.num.partitions=1", "share.coordinator.state.topic.replication.factor=3",
    "share.coordinator.state.topic.min.isr=1",
)  # fmt: skip
GROUP_KIND, TRANSACTION_KIND = 0, 1


class Client:
    """A transactional producer that looks up its coordinator and the leaders before each request."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.producer_id = self.epoch = self.sequence = -1

    def coordinator(self, kind: int, key: str) -> int:
        found: list[Any] = []

        def is_there() -> bool:
            answer = self.nodes.ask(max(self.nodes.nodes), FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])).coordinators[0]
            found[:] = [answer.node_id]
            return answer.error_code == 0 and answer.node_id in self.nodes.nodes

        self.nodes.until(is_there)
        return int(found[0])

    def ask(self, kind: int, key: str, body: Any, version: int) -> Any:
        """Asks the coordinator until its answer has no error, and returns the answer."""
        answers: list[Any] = []

        def is_done() -> bool:
            answers[:] = [self.nodes.ask(self.coordinator(kind, key), body, version)]
            return not getattr(answers[0], "error_code", 0)

        self.nodes.until(is_done)
        return answers[0]

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=60_000)
        answer = self.ask(TRANSACTION_KIND, TXN_ID, request, 4)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def add(self, *topics: str) -> None:
        named = [AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN_ID, v3_and_below_producer_id=self.producer_id, v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=named,
        )  # fmt: skip
        answer = self.nodes.ask(self.coordinator(TRANSACTION_KIND, TXN_ID), request, 3)
        codes = [part.partition_error_code for topic in answer.results_by_topic_v3_and_below for part in topic.results_by_partition]
        assert codes == [0] * len(topics)

    def produce(self, topic: str) -> None:
        batch = encode_batch(
            [Record(0, self.nodes.timers.clock.wall_ms(), None, b"v")], producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=0, is_transactional=True,
        )  # fmt: skip
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
        request = ProduceRequest(transactional_id=TXN_ID, acks=-1, timeout_ms=9_000, topic_data=[data])
        answer = self.nodes.ask(self.nodes.leader(topic).broker_id, request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def end_request(self, *, commit: bool = True) -> EndTxnRequest:
        return EndTxnRequest(transactional_id=TXN_ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit)


def stable(nodes: Nodes, topic: str) -> bool:
    """Returns whether the transaction is complete in the partition: its records and its marker are below the last stable offset."""
    leader = nodes.leader(topic)
    return leader.last_stable_offset == leader.high_watermark == 2


def test_markers_and_verification_go_to_other_brokers() -> None:
    nodes = Nodes(3, *SETTINGS)
    client = Client(nodes)
    client.begin()
    coordinator = client.coordinator(TRANSACTION_KIND, TXN_ID)
    for broker_id in nodes.nodes:
        nodes.create(f"on-{broker_id}", [broker_id])
    topics = [f"on-{broker_id}" for broker_id in nodes.nodes]
    client.add(*topics)
    for topic in topics:
        client.produce(topic)
        assert not stable(nodes, topic)
    client.ask(TRANSACTION_KIND, TXN_ID, client.end_request(), 3)
    nodes.until(lambda: all(stable(nodes, topic) for topic in topics))
    assert sum(nodes.leader(topic).broker_id != coordinator for topic in topics) == 2


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_finishes_what_was_prepared(commit: bool) -> None:
    nodes = Nodes(3, *SETTINGS)
    client = Client(nodes)
    client.begin()
    coordinator = client.coordinator(TRANSACTION_KIND, TXN_ID)
    others = [broker_id for broker_id in nodes.nodes if broker_id != coordinator]
    nodes.create("t", others)
    nodes.until(lambda: set(nodes.leader(TRANSACTION_STATE_TOPIC).isr) == {1, 2, 3})
    client.add("t")
    client.produce("t")
    host = nodes.nodes[coordinator]
    host.peers.close()  # its markers reach no broker any more
    answers = nodes.send(coordinator, client.end_request(commit=commit), 3)
    nodes.until(lambda: answers)
    assert answers[0].error_code == 0 and not stable(nodes, "t")
    nodes.kill(coordinator)
    nodes.until(lambda: stable(nodes, "t"))
    assert client.coordinator(TRANSACTION_KIND, TXN_ID) != coordinator
    client.begin()


def test_committed_offsets_survive_the_death_of_their_coordinator() -> None:
    nodes = Nodes(3, *SETTINGS)
    nodes.create("t", [1, 2, 3])
    client = Client(nodes)
    coordinator = client.coordinator(GROUP_KIND, GROUP)
    nodes.until(lambda: set(nodes.leader(GROUP_METADATA_TOPIC).isr) == {1, 2, 3})
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m")
    request = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    answer = nodes.ask(coordinator, request, 8)
    assert answer.topics[0].partitions[0].error_code == 0, answer
    nodes.kill(coordinator)
    fetch = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])]
    )
    found: list[int] = []

    def is_found() -> bool:
        group = nodes.ask(client.coordinator(GROUP_KIND, GROUP), fetch, 8).groups[0]
        found[:] = [part.committed_offset for topic in group.topics for part in topic.partitions]
        return group.error_code == 0

    nodes.until(is_found)
    assert found == [7]


def test_a_commit_that_replicas_do_not_confirm_is_answered_in_time_and_may_count_later() -> None:
    """No replica leaves the in-sync set before `replica.lag.time.max.ms` has passed, so the commit waits for replicas that do not fetch."""
    nodes = Nodes(3, *SETTINGS)
    nodes.create("t", [1, 2, 3])
    coordinator = Client(nodes).coordinator(GROUP_KIND, GROUP)
    nodes.until(lambda: set(nodes.leader(GROUP_METADATA_TOPIC).isr) == {1, 2, 3})
    request = commit_of(7)
    assert committed(nodes.ask(coordinator, request, 8)) == ErrorCode.NONE
    for number in {1, 2, 3} - {coordinator}:
        nodes.nodes[number].links.fetchers.close()
    answers = nodes.send(coordinator, request, 8)
    nodes.settle(4_900)
    assert answers == [] and set(nodes.leader(GROUP_METADATA_TOPIC).isr) == {1, 2, 3}
    nodes.settle(200)
    assert [committed(answer) for answer in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    nodes.until(lambda: nodes.leader(GROUP_METADATA_TOPIC).isr == (coordinator,))
    nodes.until(lambda: nodes.leader(GROUP_METADATA_TOPIC).high_watermark == nodes.leader(GROUP_METADATA_TOPIC).log.log_end_offset)
    assert len(answers) == 1, "an answer is given once"
    assert committed(nodes.ask(coordinator, request, 8)) == ErrorCode.NONE


def test_i46_answers_that_wait_for_replicas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(3, *SETTINGS)
    nodes.create("t", [1, 2, 3])
    coordinator = Client(nodes).coordinator(GROUP_KIND, GROUP)
    nodes.until(lambda: set(nodes.leader(GROUP_METADATA_TOPIC).isr) == {1, 2, 3})
    monkeypatch.setattr(host, "HELD_MAX", 3)
    for number in {1, 2, 3} - {coordinator}:
        nodes.nodes[number].links.fetchers.close()
    waiting = [nodes.send(coordinator, commit_of(offset), 8) for offset in range(3)]
    nodes.settle(100)
    assert committed(nodes.ask(coordinator, commit_of(3), 8)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    beat = HeartbeatRequest(group_id=GROUP, member_id="m", generation_id=1)
    assert nodes.ask(coordinator, beat).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting == [[], [], []]
    nodes.until(lambda: nodes.leader(GROUP_METADATA_TOPIC).isr == (coordinator,))
    assert committed(nodes.ask(coordinator, commit_of(4), 8)) == ErrorCode.NONE


def test_i46_answers_of_a_transaction_coordinator_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(3, *SETTINGS)
    coordinator = Client(nodes).coordinator(TRANSACTION_KIND, TXN_ID)
    nodes.until(lambda: set(nodes.leader(TRANSACTION_STATE_TOPIC).isr) == {1, 2, 3})
    monkeypatch.setattr(host, "HELD_MAX", 3)
    for number in {1, 2, 3} - {coordinator}:
        nodes.nodes[number].links.fetchers.close()
    requests = [InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=60_000) for number in range(4)]
    waiting = [nodes.send(coordinator, request) for request in requests[:3]]
    nodes.settle(100)
    assert nodes.ask(coordinator, requests[3]).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting == [[], [], []]
    nodes.until(lambda: nodes.leader(TRANSACTION_STATE_TOPIC).isr == (coordinator,))
    nodes.until(lambda: all(answers and answers[0].error_code == ErrorCode.NONE for answers in waiting))


def commit_of(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])


def committed(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def test_offsets_of_a_transaction_count_once_it_is_committed_wherever_the_group_is_coordinated() -> None:
    nodes = Nodes(3, *SETTINGS)
    client = Client(nodes)
    client.begin()
    client.coordinator(GROUP_KIND, GROUP)
    request = AddOffsetsToTxnRequest(transactional_id=TXN_ID, producer_id=client.producer_id, producer_epoch=client.epoch, group_id=GROUP)
    client.ask(TRANSACTION_KIND, TXN_ID, request, 3)
    before = nodes.leader(GROUP_METADATA_TOPIC).log.log_end_offset
    client.ask(TRANSACTION_KIND, TXN_ID, client.end_request(), 3)
    nodes.until(lambda: nodes.leader(GROUP_METADATA_TOPIC).log.log_end_offset > before)
    nodes.settle(100)
    assert nodes.leader(GROUP_METADATA_TOPIC).log.log_end_offset == before + 1, "one marker"


def test_the_state_of_share_groups_is_kept_by_whichever_broker_coordinates_it() -> None:
    """The requests 83 to 87 between brokers: each broker finds the coordinator, and the next coordinator knows the state that the last one
    wrote."""
    nodes = Nodes(3, *SETTINGS, *SHARE_SETTINGS)
    nodes.create("t", [1, 2, 3])
    topic = nodes.nodes[1].metadata.topic("t")
    assert topic is not None
    key = SharePartitionKey(GROUP, topic.topic_id, 0)
    codes: list[ErrorCode] = []
    states: list[ShareState | None] = []

    def found(code: ErrorCode, state: ShareState | None) -> None:
        codes.append(code)
        states.append(state)

    def settle(count: int) -> None:
        nodes.until(lambda: len(codes) == count)
        assert codes == [ErrorCode.NONE] * count

    nodes.nodes[1].share_persister.initialize(key, 1, 5, codes.append)
    settle(1)
    coordinator = nodes.leader(SHARE_GROUP_STATE_TOPIC).broker_id
    nodes.until(lambda: set(nodes.leader(SHARE_GROUP_STATE_TOPIC).isr) == {1, 2, 3})
    one, other = (nodes.nodes[broker_id].share_persister for broker_id in nodes.nodes if broker_id != coordinator)
    one.read(key, 2, found)
    settle(2)
    assert states[0] is not None and states[0].start_offset == 5
    one.write(key, ShareState(state_epoch=1, leader_epoch=2, start_offset=8, delivery_complete_count=0), codes.append)
    settle(3)
    nodes.kill(coordinator)
    other.read(key, 3, found)
    settle(4)
    assert states[1] is not None and states[1].start_offset == 8
    other.summary(key, 3, found)
    settle(5)
    one.write(key, ShareState(state_epoch=1, leader_epoch=2, start_offset=9, delivery_complete_count=0), codes.append)
    nodes.until(lambda: len(codes) == 6)
    assert codes.pop() is ErrorCode.FENCED_LEADER_EPOCH
    other.delete(key, codes.append)
    settle(6)
