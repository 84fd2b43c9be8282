"""The client's cache of a cluster's metadata: brokers, topics, leaders and coordinators. Callers remove outdated entries."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.counted import counted
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.errors import KafkaError, refused
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_LEADER = -1
UNKNOWN_LEADER = -2


class ClientMetadata:
    """See the module. It does no I/O: `learn` stores a Metadata answer, `forget` removes outdated entries."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.topics: dict[str, MetadataResponseTopic] = {}
        self.coordinators: dict[tuple[int, str], int] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def learn(self, answer: MetadataResponse) -> None:
        self.cluster_id = answer.cluster_id if answer.cluster_id is not None else self.cluster_id
        self.controller_id = answer.controller_id
        before, self.brokers = self.brokers, {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        if not before.keys() <= self.brokers.keys():
            self._forget_gone_brokers()
        self.racks = {broker.node_id: broker.rack for broker in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code:
                self.topics.pop(topic.name, None)
                continue
            self.topics[topic.name] = topic
            for partition in topic.partitions:
                self._leaders[TopicPartition(topic.name, partition.partition_index)] = partition.leader_id

    def _forget_gone_brokers(self) -> None:
        """Removes leaders and coordinators that are no longer alive. The next look-up asks the cluster for their successors."""
        self.coordinators = {key: broker_id for key, broker_id in self.coordinators.items() if broker_id in self.brokers}
        self.forget([partition for partition, leader in self._leaders.items() if leader >= 0 and leader not in self.brokers])

    def forget_broker(self, broker_id: int) -> None:
        """Forgets which partitions and coordinators an unreachable broker led, and that it was the controller."""
        self.coordinators = {key: known for key, known in self.coordinators.items() if known != broker_id}
        self.forget([partition for partition, leader in self._leaders.items() if leader == broker_id])
        if self.controller_id == broker_id:
            self.controller_id = -1

    def leader_of(self, partition: TopicPartition) -> int:
        """Returns the id of a partition's leader, `NO_LEADER` if it has none, or `UNKNOWN_LEADER` if it is not in the cache."""
        return self._leaders.get(partition, UNKNOWN_LEADER)

    def partition(self, partition: TopicPartition) -> MetadataResponsePartition | None:
        """Returns the cached leader, leader epoch, replicas and in-sync replicas of a partition, None if it is not in the cache."""
        topic = self.topics.get(partition.topic)
        found = [] if topic is None else [one for one in topic.partitions if one.partition_index == partition.partition]
        return found[0] if found else None

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions with an outdated leader, and their topics. The next look-up asks the cluster."""
        for partition in partitions:
            self._leaders.pop(partition, None)
            self.topics.pop(partition.topic, None)

    def no_leader(self, partition: TopicPartition) -> KafkaError:
        """Returns the error for a partition that has no leader or does not exist. Its topic must be in the cache."""
        if self.leader_of(partition) == NO_LEADER:
            found = self.partition(partition)
            offline = [] if found is None else sorted(found.offline_replicas)
            causes = [
                f"the log directory on broker {broker} is offline" if broker in self.brokers else f"broker {broker} is not running"
                for broker in offline
            ]
            reason = ": " + ", ".join(causes) if causes else ""
            return refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment{reason}")
        count = len(self.topics[partition.topic].partitions)
        message = f"topic {partition.topic!r} has {counted(count, 'partition')}, so no partition {partition.partition}"
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def no_broker(self, broker_id: int) -> KafkaError:
        return refused(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {broker_id} is alive; there are {sorted(self.brokers)}")
