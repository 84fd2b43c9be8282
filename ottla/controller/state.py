"""The controller's state: the cluster's metadata, and the epochs and versions that guard the controller's writes.

After loading, only `apply` changes it, with `Change`s that the metadata store has confirmed or that are not stored. So metadata never
contains a leader epoch that was not committed (I42).

`metadata_store/znodes.py` has the form of the state in the store. `machine.py`, `topics.py` and `configs.py` have the decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.base.cluster_metadata import (
    CONFIG_TOPIC,
    NO_LEADER,
    BrokerEpochsNoted,
    BrokerLeaving,
    BrokerPut,
    BrokerRemoved,
    Change,
    ClusterMetadata,
    ConfigPut,
    PartitionMetadata,
    PartitionPut,
    QuotaEntity,
    QuotaPut,
    ReplicasFailed,
    ScramPut,
    TopicDeleted,
    TopicMetadata,
    TopicPut,
    TopicRemoved,
)
from ottla.base.types import INTERNAL_TOPICS
from ottla.controller.leader_election import Standing
from ottla.controller.topic_names import metric_name


@dataclass(slots=True)
class MissingNodes:
    """Nodes of a topic that an interrupted creation did not write. `partitions` has each partition without a state, and whether its parent
    node is missing too."""

    is_folder_missing: bool
    partitions: dict[int, bool]


RESOURCE_BYTES = 600
"""Memory of a group or subscription with settings, in bytes, in addition to its values. Clients can create any number of them."""
LONG_VALUE_BYTES = 256
LONG_VALUE_FACTOR = 16
"""Memory of a value longer than `LONG_VALUE_BYTES`, in multiples of its length: a list of 32 kB has about 4,000 parts, which take 12 times
as much."""


def settings_bytes(configs: Mapping[str, str]) -> int:
    """Returns an estimate of the memory that these settings take, in bytes."""
    return sum([len(value) * (1 if len(value) <= LONG_VALUE_BYTES else LONG_VALUE_FACTOR) for value in configs.values()])


class ClusterState(ClusterMetadata):
    """The controller's state: the metadata, and the epochs and versions that its writes are conditional on."""

    def __init__(self, cluster_id: str = "") -> None:
        super().__init__(cluster_id)
        self.controller_epoch = 0
        self.controller_epoch_version = -1
        self.deleting: dict[str, TopicMetadata] = {}
        self.damaged_topics: frozenset[str] = frozenset()
        """Topics with damaged nodes in the store: only their names are known."""
        self.damaged_settings: frozenset[str] = frozenset()
        """Damaged nodes of settings, quotas and credentials, which are not overwritten."""
        self.missing_nodes: dict[str, MissingNodes] = {}  # as of the last reading of the store
        self.config_nodes: dict[tuple[int, str], None] = {}
        self.settings_bytes = 0
        """Estimate of the memory that the settings of all resources take, in bytes."""
        self.quota_nodes: dict[QuotaEntity, None] = {}
        self.clients_of: dict[QuotaEntity, int] = {}
        """The number of nodes in `quota_nodes` for clients of each user."""
        self.leaving: dict[int, int] = {}  # brokers that are about to stop, with their epochs
        self.failed: dict[int, frozenset[tuple[bytes, int]]] = {}  # by broker: replicas (topic id, partition) with failed logs
        self.noted_epochs: Mapping[int, int] = {}  # by broker: the epoch that all partitions' states take into account
        self.noted_version: int | None = -1  # version of the node `BROKER_EPOCHS`; -1 if there is none, None if it is damaged
        self.noted_directories: Mapping[int, tuple[str, ...]] = {}  # by broker, live or not: ids of its data directories
        self.noted_generations: Mapping[str, str] = {}  # by directory id: the newest generation
        self.dead: Mapping[int, int] = {}  # by broker: the epoch of a registration with an ended process
        self.unclean_elections = 0
        """Elections that accepted the loss of records, by this broker as the controller."""
        self._names_by_metric: dict[str, str] = {}

    @property
    def is_whole(self) -> bool:
        return not self.damaged_topics and all(partition.partition_epoch >= 0 for _, partition in self.partitions())

    def name_like(self, metric_name: str) -> str | None:
        """Returns the topic that has this name in metrics, if there is one."""
        return self._names_by_metric.get(metric_name)

    def apply(self, changes: Sequence[Change]) -> None:
        is_membership_changed = False
        moved: dict[str, dict[int, PartitionMetadata]] = {}
        for change in changes:
            if isinstance(change, PartitionPut):
                moved.setdefault(change.topic, {})[change.partition.index] = change.partition
                continue
            # The new states of a topic's partitions are applied together, because each application copies the topic.
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
            elif isinstance(change, ScramPut):
                self._put_scram(change)
            elif isinstance(change, BrokerEpochsNoted):
                self.noted_epochs, self.noted_version, self.dead = change.epochs, change.version, change.dead
                self.noted_directories, self.noted_generations = change.directories, change.generations
            elif isinstance(change, BrokerLeaving):
                self.leaving[change.broker_id] = change.epoch
            elif isinstance(change, ReplicasFailed):
                self._put_failed(change)
                is_membership_changed = True
            else:
                self._change_membership(change)
                is_membership_changed = True
        self._put_partitions(moved)
        if is_membership_changed:
            self._renew_offline_replicas()

    def standing(self, *leaving: int) -> Standing:
        """Returns the standing of the registered brokers. `leaving` are additional brokers that are about to stop."""
        return Standing(live=self.brokers, leaving=(*self.leaving, *leaving))

    def standing_for(self, standing: Standing, topic: TopicMetadata, partition: PartitionMetadata) -> Standing:
        """Returns `standing` for one partition, without brokers on which the log of its replica has failed."""
        if not self.failed:
            return standing
        key = (topic.topic_id, partition.index)
        failed = [broker_id for broker_id, replicas in self.failed.items() if key in replicas and broker_id not in standing.restarted]
        return standing.without(failed) if failed else standing

    def take_failed(self, failed: Mapping[int, frozenset[tuple[bytes, int]]]) -> None:
        """Copies the failed replicas from the former state, because no node holds them."""
        self.failed = {broker_id: replicas for broker_id, replicas in failed.items() if broker_id in self.brokers}
        self._renew_offline_replicas()

    def _put_failed(self, change: ReplicasFailed) -> None:
        if change.replicas:
            self.failed[change.broker_id] = change.replicas
        else:
            self.failed.pop(change.broker_id, None)

    def take_leaving(self, leaving: Mapping[int, int]) -> None:
        """Copies the stopping brokers from the former state, because no node holds them."""
        epochs = {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}
        self.leaving = {broker_id: epoch for broker_id, epoch in leaving.items() if epochs.get(broker_id) == epoch}

    def _change_membership(self, change: BrokerPut | BrokerRemoved) -> None:
        broker_id = change.broker.broker_id if isinstance(change, BrokerPut) else change.broker_id
        self.failed.pop(broker_id, None)
        if isinstance(change, BrokerPut):
            self.brokers[broker_id] = change.broker
        else:
            self.brokers.pop(broker_id, None)
        if not isinstance(change, BrokerPut) or self.leaving.get(broker_id) != change.broker.epoch:
            self.leaving.pop(broker_id, None)

    def partitions(self) -> Iterator[tuple[TopicMetadata, PartitionMetadata]]:
        for topic in self._topics.values():
            for partition in topic.partitions:
                yield topic, partition

    def _offline(self, topic: TopicMetadata, partition: PartitionMetadata) -> tuple[int, ...]:
        offline = tuple(replica for replica in partition.replicas if replica not in self.brokers)
        if not self.failed:
            return offline
        key = (topic.topic_id, partition.index)
        return tuple(replica for replica in partition.replicas if replica in offline or key in self.failed.get(replica, ()))

    def _with_offline(self, topic: TopicMetadata, partition: PartitionMetadata) -> PartitionMetadata:
        """Returns the partition with its current offline replicas; the same object if they have not changed, to save memory."""
        offline = self._offline(topic, partition)
        return partition if offline == partition.offline_replicas else replace(partition, offline_replicas=offline)

    def _put_topic(self, topic: TopicMetadata) -> None:
        known = self._topics.get(topic.name)
        assert known is None or known.topic_id == topic.topic_id, f"{topic.name} got another id without having been deleted"
        partitions = tuple(self._with_offline(topic, partition) for partition in topic.partitions)
        self.partition_count += len(partitions) - (len(known.partitions) if known is not None else 0)
        self.settings_bytes += settings_bytes(topic.configs) - (settings_bytes(known.configs) if known is not None else 0)
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
        self.settings_bytes -= settings_bytes(topic.configs)

    def _put_partitions(self, moved: dict[str, dict[int, PartitionMetadata]]) -> None:
        for name, of_topic in moved.items():
            topic = self._topics[name]
            partitions = list(topic.partitions)
            for index, new in of_topic.items():
                assert new.leader_epoch >= partitions[index].leader_epoch, f"{name}-{index}: the leader epoch fell (I15)"
                assert new.leader == NO_LEADER or new.leader in new.isr, f"{name}-{index}: the leader is not in sync (I9)"
                self.unclean_elections += new.loss_epoch > partitions[index].loss_epoch
                partitions[index] = replace(new, offline_replicas=self._offline(topic, new))
            self._topics[name] = replace(topic, partitions=tuple(partitions))
        moved.clear()

    def _put_configs(self, change: ConfigPut) -> None:
        key = (change.resource_type, change.name)
        self.settings_bytes += settings_bytes(change.configs) - settings_bytes(self.configs(*key))
        if change.resource_type != CONFIG_TOPIC and key not in self.config_nodes:
            self.settings_bytes += RESOURCE_BYTES
        self.config_nodes[key] = None
        if change.resource_type == CONFIG_TOPIC:
            self._topics[change.name] = replace(self._topics[change.name], configs=dict(change.configs))
        elif change.configs:
            self._configs[change.resource_type, change.name] = dict(change.configs)
        else:
            self._configs.pop((change.resource_type, change.name), None)

    def _put_quotas(self, change: QuotaPut) -> None:
        self._note_quota_node(change.entity, change.has_node)
        if change.quotas:
            self.quotas[change.entity] = dict(change.quotas)
        else:
            self.quotas.pop(change.entity, None)

    def _note_quota_node(self, entity: QuotaEntity, has_node: bool) -> None:
        if has_node == (entity in self.quota_nodes):
            return
        if has_node:
            self.quota_nodes[entity] = None
        else:
            del self.quota_nodes[entity]
        user = tuple(pair for pair in entity if pair[0] == "user")
        if user and user != entity:
            self.clients_of[user] = self.clients_of.get(user, 0) + (1 if has_node else -1)
            if not self.clients_of[user]:
                del self.clients_of[user]

    def _put_scram(self, change: ScramPut) -> None:
        if change.credentials:
            self._note_quota_node((("user", change.user),), True)
            self.scram[change.user] = dict(change.credentials)
        else:
            self.scram.pop(change.user, None)

    def _renew_offline_replicas(self) -> None:
        for name, topic in self._topics.items():
            partitions = tuple(self._with_offline(topic, partition) for partition in topic.partitions)
            if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
                self._topics[name] = replace(topic, partitions=partitions)
