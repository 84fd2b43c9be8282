"""What the cluster looks like: brokers, topics, partitions, configurations. The hard state of the controller and the read side of every
handler.

`ClusterMetadata` is what handlers read: `topic(name)`, `topic_by_id(id)`, `brokers`, `controller_id`. Its objects are immutable and
replaced when something changes, so a reader that keeps one for the length of a request sees one truth. `ClusterState` is the
controller's: it adds the epochs that guard writes. Only `apply` changes it, with `Change`s whose write the metadata store has confirmed;
so metadata never names a leader epoch that was not committed (I42).

Left out: how the state is kept in the store (`znodes.py`), and who decides (`machine.py`, `topics.py`, `configs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.types import INTERNAL_TOPICS
from ottla.controller.topic_names import metric_name

NO_LEADER = -1
CONFIG_TOPIC = 2
CONFIG_BROKER = 4
CONFIG_BROKER_LOGGER = 8
CONFIG_CLIENT_METRICS = 16
CONFIG_GROUP = 32
ALL_BROKERS = ""
"""The name under which the cluster's default for brokers is kept."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type (user, client-id, ip) and name, sorted by type; the name None is the default entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition as the controller last wrote it. `partition_epoch` is the version of its state node."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    partition_epoch: int = 0
    controller_epoch: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic. `version` is that of its node in the store."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetadata:
    """A live broker: where each of its listeners is reached. `epoch` is new with every registration."""

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TopicPut:
    """The topic exists with these partitions, new or changed as a whole."""

    topic: TopicMetadata


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """The topic is marked for deletion: nobody sees it any more, its name is not free yet."""

    name: str


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The last trace of a removed topic is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class PartitionPut:
    """One partition of a known topic has a new state."""

    topic: str
    partition: PartitionMetadata


@dataclass(frozen=True, slots=True)
class ConfigPut:
    """The whole configuration of one resource (for a topic: of the known topic)."""

    resource_type: int
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QuotaPut:
    """The quotas of one entity; none of them removes the entity."""

    entity: QuotaEntity
    quotas: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BrokerPut:
    broker: BrokerMetadata


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    broker_id: int


Change = TopicPut | TopicRemoved | TopicDeleted | PartitionPut | ConfigPut | QuotaPut | BrokerPut | BrokerRemoved


class ClusterMetadata:
    """The cluster as this broker knows it."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.brokers: dict[int, BrokerMetadata] = {}
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.partition_count = 0
        self._topics: dict[str, TopicMetadata] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        name = self._names_by_id.get(topic_id)
        return None if name is None else self._topics[name]

    def topics(self) -> Iterable[TopicMetadata]:
        """In order of creation as this broker learnt it."""
        return self._topics.values()

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        known = self._topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a resource; for a broker by its number as text, `ALL_BROKERS` for the default."""
        if resource_type == CONFIG_TOPIC:
            topic = self._topics.get(name)
            return {} if topic is None else topic.configs
        return self._configs.get((resource_type, name), {})

    def config_names(self, resource_type: int) -> list[str]:
        """The resources of a type for which something is set."""
        if resource_type == CONFIG_TOPIC:
            return [topic.name for topic in self._topics.values() if topic.configs]
        return sorted(name for kind, name in self._configs if kind == resource_type)


class ClusterState(ClusterMetadata):
    """The controller's state: the metadata, and the epochs and versions that its writes are conditional on."""

    def __init__(self, cluster_id: str = "") -> None:
        super().__init__(cluster_id)
        self.controller_epoch = 0
        self.controller_epoch_version = -1
        self.deleting: dict[str, TopicMetadata] = {}
        self.config_nodes: dict[tuple[int, str], None] = {}
        self.quota_nodes: dict[QuotaEntity, None] = {}
        self._names_by_metric: dict[str, str] = {}

    def name_like(self, metric_name: str) -> str | None:
        """A topic that metrics call by this name."""
        return self._names_by_metric.get(metric_name)

    def apply(self, changes: Sequence[Change]) -> None:
        """Takes over changes that the store has confirmed; cannot fail on them."""
        is_membership_changed = False
        moved: dict[str, dict[int, PartitionMetadata]] = {}
        for change in changes:
            if isinstance(change, PartitionPut):
                moved.setdefault(change.topic, {})[change.partition.index] = change.partition
                continue
            # Partitions are put topic by topic, because each put makes the topic anew; what follows must see them.
            self._put_partitions(moved)
            if isinstance(change, TopicPut):
                self._put_topic(change.topic)
            elif isinstance(change, TopicRemoved):
                self._remove_topic(change.name)
            elif isinstance(change, TopicDeleted):
                self._delete_topic(change.name)
            elif isinstance(change, ConfigPut):
                self._put_configs(change)
            elif isinstance(change, QuotaPut):
                self._put_quotas(change)
            elif isinstance(change, BrokerPut):
                self.brokers[change.broker.broker_id] = change.broker
                is_membership_changed = True
            else:
                self.brokers.pop(change.broker_id, None)
                is_membership_changed = True
        self._put_partitions(moved)
        if is_membership_changed:
            self._renew_offline_replicas()

    def partitions(self) -> Iterator[tuple[TopicMetadata, PartitionMetadata]]:
        for topic in self._topics.values():
            for partition in topic.partitions:
                yield topic, partition

    def _offline(self, replicas: Iterable[int]) -> tuple[int, ...]:
        return tuple(replica for replica in replicas if replica not in self.brokers)

    def _with_offline(self, partition: PartitionMetadata) -> PartitionMetadata:
        """The same object where nothing changes: there are many."""
        offline = self._offline(partition.replicas)
        return partition if offline == partition.offline_replicas else replace(partition, offline_replicas=offline)

    def _put_topic(self, topic: TopicMetadata) -> None:
        known = self._topics.get(topic.name)
        assert known is None or known.topic_id == topic.topic_id, f"{topic.name} got another id without having been deleted"
        partitions = tuple(map(self._with_offline, topic.partitions))
        self.partition_count += len(partitions) - (len(known.partitions) if known is not None else 0)
        self._topics[topic.name] = replace(topic, partitions=partitions, is_internal=topic.name in INTERNAL_TOPICS)
        self._names_by_id[topic.topic_id] = topic.name
        self._names_by_metric[metric_name(topic.name)] = topic.name

    def _delete_topic(self, name: str) -> None:
        self.deleting.pop(name, None)
        self.config_nodes.pop((CONFIG_TOPIC, name), None)

    def _remove_topic(self, name: str) -> None:
        topic = self.deleting[name] = self._topics.pop(name)
        del self._names_by_id[topic.topic_id]
        self._names_by_metric.pop(metric_name(name), None)
        self.partition_count -= len(topic.partitions)

    def _put_partitions(self, moved: dict[str, dict[int, PartitionMetadata]]) -> None:
        for name, of_topic in moved.items():
            topic = self._topics[name]
            partitions = list(topic.partitions)
            for index, new in of_topic.items():
                assert new.leader_epoch >= partitions[index].leader_epoch, f"{name}-{index}: the leader epoch fell (I15)"
                assert new.leader == NO_LEADER or new.leader in new.isr, f"{name}-{index}: the leader is not in sync (I9)"
                partitions[index] = replace(new, offline_replicas=self._offline(new.replicas))
            self._topics[name] = replace(topic, partitions=tuple(partitions))
        moved.clear()

    def _put_configs(self, change: ConfigPut) -> None:
        self.config_nodes[change.resource_type, change.name] = None
        if change.resource_type == CONFIG_TOPIC:
            self._topics[change.name] = replace(self._topics[change.name], configs=dict(change.configs))
        elif change.configs:
            self._configs[change.resource_type, change.name] = dict(change.configs)
        else:
            self._configs.pop((change.resource_type, change.name), None)

    def _put_quotas(self, change: QuotaPut) -> None:
        self.quota_nodes[change.entity] = None
        if change.quotas:
            self.quotas[change.entity] = dict(change.quotas)
        else:
            self.quotas.pop(change.entity, None)

    def _renew_offline_replicas(self) -> None:
        for name, topic in self._topics.items():
            partitions = tuple(map(self._with_offline, topic.partitions))
            if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
                self._topics[name] = replace(topic, partitions=partitions)
