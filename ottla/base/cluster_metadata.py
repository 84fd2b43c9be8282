"""The metadata of the cluster (brokers, topics, partitions, configurations, quotas), and its changes.

`ClusterMetadata` is what handlers read: `topic(name)`, `topic_by_id(id)`, `brokers`, `controller_id`. Its values are immutable and replaced
at each change, so a request that keeps a value sees one consistent state. The controller's state (`controller/state.py`) has values of the
same types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from ottla.base.immutable import immutable

NO_LEADER = -1
CONFIG_TOPIC = 2
CONFIG_BROKER = 4
CONFIG_BROKER_LOGGER = 8
CONFIG_CLIENT_METRICS = 16
CONFIG_GROUP = 32
ALL_BROKERS = ""
"""The name of the cluster's default settings for brokers."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Pairs of entity type (user, client-id, ip) and name, sorted by type; the name None is the default entity."""


@immutable(kw_only=True)
class PartitionMetadata:
    """One partition as the controller last wrote it. `partition_epoch` is the version of its state node. `offline_replicas` are replicas
    that are on brokers that are not live, or whose logs have failed.

    `eligible` (KIP-966) are replicas outside of the ISR. The high watermark has not risen since they left the ISR, so they have all
    acknowledged records. `last_leader` is -1 while the partition has a leader. Without a leader it is the previous leader, or a follower
    that has reported that the previous leader lacks records. `last_known` are replicas that were in sync or eligible, and have then
    restarted without a proof that their logs are complete. `emptied` are replicas that returned without their data directories, or were
    reported to lack records below a high watermark. `loss_epoch` is the newest leader epoch that began with an unclean election (allowed by
    an operator or the topic's settings), or with the election of an empty replica when all replicas were empty.
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
    """The path of a log directory on its broker, and its generations (`storage/generations.py`), the newest last."""

    path: str
    generations: tuple[str, ...]


class Renewal(NamedTuple):
    """A generation of a log directory, and how many times the running broker has renewed it."""

    generation: str
    number: int


@immutable(kw_only=True)
class BrokerMetadata:
    """A live broker, with the addresses of its listeners. Every registration has a new `epoch`. `is_clean` means that the broker has proved
    that its logs are complete since an earlier registration: the last one that a controller has processed. `directories` are the ids of its
    data directories, and `histories` has their histories by id. `cordons` has the path of each log directory, and whether the configuration
    file cordons it. Only a controller knows `directories`, `histories` and `cordons`.
    """

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    epoch: int = -1
    is_clean: bool = False
    directories: tuple[str, ...] = ()
    histories: Mapping[str, LogDirectoryHistory] = field(default_factory=dict)
    cordons: Mapping[str, bool] = field(default_factory=dict)


@immutable
class TopicPut:
    """Creates a topic, or replaces all of it."""

    topic: TopicMetadata


@immutable
class TopicRemoved:
    """Marks a topic for deletion. Clients do not see it any more, but its name cannot be used again yet."""

    name: str


@immutable
class TopicDeleted:
    """Ends the deletion of a topic: all its nodes are deleted."""

    name: str


@immutable
class PartitionPut:
    """Replaces the state of one partition of a known topic."""

    topic: str
    partition: PartitionMetadata


@immutable
class ConfigPut:
    """Replaces the configuration of one resource. If it is a topic, the topic must be known."""

    resource_type: int
    name: str
    configs: Mapping[str, str]


@immutable
class QuotaPut:
    """Replaces the quotas of one entity; empty quotas remove it. `has_node`: the entity's node still exists in the store, for example
    because the user has credentials.
    """

    entity: QuotaEntity
    quotas: Mapping[str, float]
    has_node: bool = True


@immutable
class ScramPut:
    """Replaces the SCRAM credentials of a user: the stored text by mechanism. An empty mapping removes all."""

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
    """Announces that the broker of this epoch is about to stop."""

    broker_id: int
    epoch: int


@immutable
class ReplicasFailed:
    """Replaces the set of a live broker's replicas that have failed logs. A replica is a pair of topic id and partition."""

    broker_id: int
    replicas: frozenset[tuple[bytes, int]]


@immutable
class BrokerEpochsNoted:
    """The epochs of live brokers that the controller has processed. `dead`: the epochs of brokers that are still registered although their
    process has died. `version` is the version of the node that stores all this, None for a damaged node, which must not be written.
    `directories`: the last known data directories of every broker, live or not. `generations`: the newest generation of each directory.
    """

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
        self.client_metrics_version = 0
        """The number of changes of subscriptions to metrics of clients."""
        self._topics: dict[str, TopicMetadata] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}

    def recently_gone(self) -> Iterable[BrokerMetadata]:
        """Returns brokers that were live until recently and are still shown to clients."""
        return ()

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata | None:
        name = self._names_by_id.get(topic_id)
        return None if name is None else self._topics[name]

    def is_deleted(self, topic_id: bytes) -> bool:
        """Whether the topic certainly does not exist any more."""
        return topic_id not in self._names_by_id

    def topics(self) -> Iterable[TopicMetadata]:
        """Returns all topics, ordered by the time when this broker learned of them."""
        return self._topics.values()

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        known = self._topics.get(topic)
        return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Returns the settings of a resource. A broker's name is its id as text, or `ALL_BROKERS` for the default."""
        if resource_type == CONFIG_TOPIC:
            topic = self._topics.get(name)
            return {} if topic is None else topic.configs
        return self._configs.get((resource_type, name), {})

    def config_names(self, resource_type: int) -> list[str]:
        """Returns the names of all resources of a type with settings."""
        if resource_type == CONFIG_TOPIC:
            return [topic.name for topic in self._topics.values() if topic.configs]
        return sorted(name for (kind, name), configs in self._configs.items() if kind == resource_type and configs)
