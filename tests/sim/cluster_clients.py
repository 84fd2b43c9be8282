"""The clients of a simulated cluster: the clients of `clients.py`, extended to look for leaders; and operators who change topics and
replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.handlers.topics import alter_partition_reassignments, create_topics, delete_topics, elect_leaders
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.sim.clients import AGAIN, GiveUp, PlainProducer, Producer
from tests.sim.cluster_broker import ClusterBroker
from tests.sim.network import Call
from tests.sim.process import Steps

CONTROLLER = TopicPartition("", -1)
"""Where requests go that the controller carries out: to any broker."""
ELSEWHERE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
REPLICAS = 3


class ClusterProducer(Producer):
    """A transactional producer that copies records (the worker of one group), and looks up leaders and coordinators before each request."""

    again = AGAIN | ELSEWHERE


class ClusterPlainProducer(PlainProducer):
    """An idempotent producer with acks=all."""

    again = AGAIN | ELSEWHERE


class PatientProducer(ClusterPlainProducer):
    """A producer that waits for its acknowledgement while leaders change."""

    produce_timeout_ms = 3_000
    patience_ms = 3_200


class HastyProducer(ClusterPlainProducer):
    """A producer with acks=1. An acknowledged record may be lost with the leader, and then a late copy of the request may be appended at
    another offset; but no record may be in the log twice.
    """

    acks = 1

    def _produce(self, partition: TopicPartition, values: list[str], sequence: int) -> Steps:
        yield from self._must(*self._batch(partition, values, sequence))

    def _write(self) -> Steps:
        before = len(self.world.history.transactions)
        yield from super()._write()
        for transaction in self.world.history.transactions[before:]:
            if transaction.transactional_id == self.group_id:
                transaction.outcome = "info"


class Operator:
    """Creates and deletes topics and moves replicas, one after the other; ignores refusals."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.chance = world.chance
        self.names: list[str] = []
        self.made = 0
        self.done: dict[str, int] = {}

    def run(self) -> Steps:
        while not self.world.is_ending:
            yield self.chance.randint(100, 1_200)
            step = self.chance.choice([self._create, self._delete, self._elect, self._move, self._elect])
            try:
                yield from step()
            except GiveUp:
                continue

    def _ask(self, name: str, handler: Any, version: int, body: Callable[[], Any]) -> Steps:
        answer = yield Call(handler, version, body, CONTROLLER)
        if answer is not None:
            self.done[name] = self.done.get(name, 0) + 1
        return answer

    def create_at(self, broker: ClusterBroker) -> None:
        """Sends a request to this broker, and ignores the outcome."""
        topic = self._new_topic()
        call = Call(create_topics, 7, lambda: CreateTopicsRequest(topics=[topic], timeout_ms=500), CONTROLLER)
        self.world.network.send(call, broker.host, lambda _answer: None)

    def elect_leader_of(self, key: TopicPartition) -> None:
        """Asks a broker to elect the preferred replica."""
        wanted = [TopicPartitions(topic=key.topic, partitions=[key.partition])]
        body = ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=500)
        self.world.send(Call(elect_leaders, 2, lambda: body, CONTROLLER), lambda _answer: None)

    def _create(self) -> Steps:
        topic = self._new_topic()
        yield from self._ask("create", create_topics, 7, lambda: CreateTopicsRequest(topics=[topic], timeout_ms=500))

    def _new_topic(self) -> CreatableTopic:
        self.made += 1
        name = f"x{self.made}"
        self.names.append(name)
        return CreatableTopic(name=name, num_partitions=1, replication_factor=self.chance.choice((1, 2, 3)))

    def _delete(self) -> Steps:
        if not self.names:
            raise GiveUp
        name = self.chance.choice(self.names)
        self.names.remove(name)
        wanted = [DeleteTopicState(name=name)]
        yield from self._ask("delete", delete_topics, 6, lambda: DeleteTopicsRequest(topics=wanted, timeout_ms=500))

    def _elect(self) -> Steps:
        yield from self._ask("elect", elect_leaders, 2, lambda: ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=500))

    def _move(self) -> Steps:
        key = self.chance.choice(self.world.moved_keys)
        numbers = sorted(self.world.brokers)
        target = self.chance.sample(numbers, min(REPLICAS, len(numbers)))
        wanted = ReassignableTopic(name=key.topic, partitions=[ReassignablePartition(partition_index=key.partition, replicas=target)])
        yield from self._ask(
            "move", alter_partition_reassignments, 0,
            lambda: AlterPartitionReassignmentsRequest(timeout_ms=500, topics=[wanted]),
        )  # fmt: skip
