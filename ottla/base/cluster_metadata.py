"""The metadata of the cluster: brokers, topics, partitions, configurations, quotas, and the changes of them.

`ClusterMetadata` is what handlers read: `topic(name)`, `topic_by_id(id)`, `brokers`, `controller_id`. Its objects are immutable and
replaced when something changes, so a reader that keeps one for the length of a request sees one state. The controller's state
(`controller/state.py`) is another object of the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from ottla.base.immutable import immutable

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


@immutable(kw_only=True)
class PartitionMetadata:
    """One partition as the controller last wrote it. `partition_epoch` is the version of its state node.

    `eligible` (KIP-966): replicas that left the in-sync set below `min.insync.replicas` and have not lost their logs since; they hold all
    that was acknowledged. While no broker leads: `last_leader` led last, `last_known` were in sync or eligible until they restarted without
    a proof that their logs are whole, and `emptied` came back without any of the data directories that they had, or were reported to lack
    records below a high watermark. `loss_epoch`: the newest leader epoch that began with an election that was allowed to lose records, by
    an operator or by the topic's settings.
    """

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
    eligible: tuple[int, ...] = ()
    last_leader: int = NO_LEADER
    last_known: tuple[int, ...] = ()
    emptied: tuple[int, ...] = ()
    loss_epoch: int = -1


@immutable(kw_only=True)
class TopicMetadata:
    """One topic. `version` is the version of its node in the metadata store."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    is_internal: bool = False
    version: int = 0


@immutable
class LogDirectoryHistory:
    """Where a log directory is on its broker, and its generations (`storage/generations.py`), the newest last."""

    path: str
    generations: tuple[str, ...]


@immutable(kw_only=True)
class BrokerMetadata:
    """A live broker: where each of its listeners is reached. `epoch` is new with every registration. `is_clean`: it has proved that its
    logs lost nothing since its last life. `directories`: the ids of its data directories, and `histories` by these ids; only controllers
    know them."""

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    epoch: int = -1
    is_clean: bool = False
    directories: tuple[str, ...] = ()
    histories: Mapping[str, LogDirectoryHistory] = field(default_factory=dict)


@immutable
class TopicPut:
    """The topic exists with these partitions, new or changed as a whole."""

    topic: TopicMetadata


@immutable
class TopicRemoved:
    """The topic is marked for deletion: clients do not see it any more, its name is not free yet."""

    name: str


@immutable
class TopicDeleted:
    """All nodes of a removed topic are deleted."""

    name: str


@immutable
class PartitionPut:
    """One partition of a known topic has a new state."""

    topic: str
    partition: PartitionMetadata


@immutable
class ConfigPut:
    """The whole configuration of one resource (for a topic: of the known topic)."""

    resource_type: int
    name: str
    configs: Mapping[str, str]


@immutable
class QuotaPut:
    """The quotas of one entity; none of them removes the entity. `has_node`: whether its node stays in the store, as it does for a user
    with credentials or clients."""

    entity: QuotaEntity
    quotas: Mapping[str, float]
    has_node: bool = True


@immutable
class ScramPut:
    """The SCRAM credentials of a user, by mechanism, as the text that is stored; none of them removes them all."""

    user: str
    credentials: Mapping[str, str] = field(repr=False)


SettingPut = ConfigPut | QuotaPut | ScramPut


@immutable
class BrokerPut:
    broker: BrokerMetadata


@immutable
class BrokerRemoved:
    broker_id: int


@immutable
class BrokerLeaving:
    """The broker of this epoch is about to stop."""

    broker_id: int
    epoch: int


@immutable
class ReplicasFailed:
    """All replicas (topic id and partition) of a live broker whose logs have failed."""

    broker_id: int
    replicas: frozenset[tuple[bytes, int]]


@immutable
class BrokerEpochsNoted:
    """The epochs of the live brokers that the partitions' states take into account. `dead`: the epochs of brokers whose process is known to
    have died while their registration still exists. `version` is the version of their node, None if the node is damaged and is not written.
    `directories`: the data directories of every broker when it was last noted, live or not. `generations`: the newest of each directory."""

    epochs: Mapping[int, int]
    version: int | None
    dead: Mapping[int, int] = field(default_factory=dict)
    directories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    generations: Mapping[str, str] = field(default_factory=dict)


Change = (
    TopicPut
    | TopicRemoved
    | TopicDeleted
    | PartitionPut
    | ConfigPut
    | QuotaPut
    | ScramPut
    | BrokerPut
    | BrokerRemoved
    | BrokerLeaving
    | BrokerEpochsNoted
    | ReplicasFailed
)


class ClusterMetadata:
    """The cluster as this broker knows it."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.controller_id = NO_LEADER
        self.controller_epoch = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self.scram: dict[str, Mapping[str, str]] = {}
        """The SCRAM credentials of users, by mechanism (`security/credentials.py`)."""
        self.partition_count = 0
        self._topics: dict[str, TopicMetadata] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}

    def recently_gone(self) -> Iterable[BrokerMetadata]:
        """Brokers that were live a moment ago; clients may still need to see them."""
        return ()

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        name = self._names_by_id.get(topic_id)
        return None if name is None else self._topics[name]

    def is_deleted(self, topic_id: bytes) -> bool:
        """Whether it is certain that there is no such topic any more."""
        return topic_id not in self._names_by_id

    def topics(self) -> Iterable[TopicMetadata]:
        """All topics, in the order of their arrival at this broker."""
        return self._topics.values()

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        known = self._topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings of a resource; for a broker by its number as text, `ALL_BROKERS` for the default."""
        if resource_type == CONFIG_TOPIC:
            topic = self._topics.get(name)
            return {} if topic is None else topic.configs
        return self._configs.get((resource_type, name), {})

    def config_names(self, resource_type: int) -> list[str]:
        """The names of the resources of a type that have settings."""
        if resource_type == CONFIG_TOPIC:
            return [topic.name for topic in self._topics.values() if topic.configs]
        return sorted(name for (kind, name), configs in self._configs.items() if kind == resource_type and configs)
