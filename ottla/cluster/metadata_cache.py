"""The cluster's metadata as this broker serves it, from the controllers' messages and, in a cluster, the settings in the metadata store.

Topics, partitions and brokers are the immutable values of the messages, not copies. A partition never returns to an older leader epoch or
partition epoch of the same topic. `control/receiver.py` refuses whole messages of an older controller.

A broker knows before the controller that its own replicas have failed with a disk (`mark_offline`). Until such a replica works again, it is
shown to readers as offline, and a partition that it leads is shown without a leader. The controllers' metadata is kept unchanged beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ottla.base.cluster_metadata import (
    CONFIG_CLIENT_METRICS,
    CONFIG_TOPIC,
    NO_LEADER,
    BrokerMetadata,
    ClusterMetadata,
    ConfigPut,
    PartitionMetadata,
    QuotaEntity,
    QuotaPut,
    ScramPut,
    TopicMetadata,
)
from ottla.base.control_messages import UpdateConfigs, UpdateMetadata
from ottla.base.types import TopicPartition

GONE_SHOWN_MS = 5_000
"""Dead brokers are in answers to clients for this many milliseconds. librdkafka first drops a missing broker and its partitions. It then
ignores the new leaders in the same answer, and may ask for them again only a second later."""

DELETED_MAX = 10_000
"""Maximum number of remembered ids of deleted topics."""


class MetadataCache(ClusterMetadata):
    """Implements `ClusterMetadata`. The controllers' messages update it."""

    def __init__(self, cluster_id: str = "", now_ms: Callable[[], int] | None = None) -> None:
        """`now_ms` is a monotonic clock. Without it dead brokers are not shown."""
        super().__init__(cluster_id)
        self._now_ms = now_ms
        self._gone: dict[int, tuple[BrokerMetadata, int]] = {}  # dead brokers, and the times of their removal
        self._offline: dict[str, dict[int, int]] = {}  # topic -> partition -> this broker's id
        self.is_of_cluster = False
        """Whether there may be topics that this broker has not been sent yet. False for a single broker."""
        self.on_quotas: Callable[[Collection[QuotaEntity] | None], object] | None = None
        """Called with the entities whose quotas may have changed; None means any."""
        self._deleted: dict[bytes, None] = {}  # topic ids, the newest last
        self._sent: dict[str, TopicMetadata] = {}  # topics with offline replicas, as the controllers have sent them
        self.on_credentials: Callable[[], object] = lambda: None
        """Called when credentials of users have changed."""

    def broker_epoch(self, broker_id: int) -> int | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def mark_offline(self, broker_id: int, replicas: Iterable[TopicPartition]) -> None:
        """Shows these failed replicas of this broker as offline."""
        topics: dict[str, None] = {}
        for key in replicas:
            self._offline.setdefault(key.topic, {})[key.partition] = broker_id
            topics[key.topic] = None
        for name in topics:
            self._show(name)

    def is_offline_here(self, key: TopicPartition) -> bool:
        return key.partition in self._offline.get(key.topic, ())

    def offline_here(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, partitions in self._offline.items() for index in partitions]

    def mark_online(self, replicas: Iterable[TopicPartition]) -> None:
        """Ends `mark_offline` for replicas that can be served again, or are about to be opened."""
        topics: dict[str, None] = {}
        for key in replicas:
            if self._offline.get(key.topic, {}).pop(key.partition, None) is not None:
                topics[key.topic] = None
        for name in topics:
            if not self._offline[name]:
                del self._offline[name]
            self._show(name)

    def _show(self, name: str) -> None:
        """Updates the topic that readers see with its offline replicas."""
        known = self._sent.pop(name, None) or self._topics.get(name)
        if known is None:
            return
        self._topics[name] = known
        offline = self._offline.get(name)
        if offline:
            self._sent[name] = known
            self._topics[name] = replace(known, partitions=tuple(_without(one, offline.get(one.index)) for one in known.partitions))

    def is_deleted(self, topic_id: bytes) -> bool:
        """Whether a topic with this id was deleted. In a cluster, the newest `DELETED_MAX` ids are known."""
        return topic_id in self._deleted if self.is_of_cluster else super().is_deleted(topic_id)

    def update(self, message: UpdateMetadata) -> tuple[list[str], list[str]]:
        """Applies a message. Returns the names of the topics that it has put (some may be unchanged), and the names of removed topics."""
        self.controller_id, self.controller_epoch = message.controller_id, message.controller_epoch
        before, self.brokers = self.brokers, {broker.broker_id: broker for broker in message.brokers}
        if self._now_ms is not None and (self._gone or before.keys() != self.brokers.keys()):
            self._note_gone(before, self._now_ms())
        removed = [name for name, topic_id in message.removed if self._remove(name, topic_id)]
        self._note_deleted(topic_id for _, topic_id in message.removed)
        if message.is_complete:
            named = {topic.name: topic.topic_id for topic in message.topics}
            for topic in list(self._topics.values()):
                if named.get(topic.name) != topic.topic_id and self._remove(topic.name, topic.topic_id):
                    removed.append(topic.name)
        changed = [topic.name for topic in message.topics if self._put(topic)]
        return changed, [name for name in removed if name not in self._topics]

    def _note_gone(self, before: Mapping[int, BrokerMetadata], now_ms: int) -> None:
        gone = {broker_id: (broker, now_ms) for broker_id, broker in before.items()}
        self._gone = {broker_id: one for broker_id, one in (self._gone | gone).items() if broker_id not in self.brokers}

    def recently_gone(self) -> list[BrokerMetadata]:
        if not self._gone or self._now_ms is None:
            return []
        shown_since_ms = self._now_ms() - GONE_SHOWN_MS
        return [broker for broker, gone_ms in self._gone.values() if gone_ms > shown_since_ms]

    def update_configs(self, message: UpdateConfigs) -> list[tuple[int, str]]:
        """Applies a message. Returns the resources with changed settings, and all topics in the message."""
        keys = [(change.resource_type, change.name) for change in message.changes if isinstance(change, ConfigPut)]
        before: dict[tuple[int, str], Mapping[str, str]] = {key: self._configs[key] for key in keys if key in self._configs}
        if message.is_complete:
            before = self._configs
            self._configs, self.quotas, self.scram = {}, {}, {}
        topics: list[tuple[int, str]] = []
        entities: list[QuotaEntity] = []
        for change in message.changes:
            if isinstance(change, QuotaPut):
                self._put_quotas(change)
                entities.append(change.entity)
                continue
            if isinstance(change, ScramPut):
                self._put_scram(change)
                continue
            self._put_configs(change)
            if change.resource_type == CONFIG_TOPIC:
                topics.append((CONFIG_TOPIC, change.name))
        if (entities or message.is_complete) and self.on_quotas is not None:
            self.on_quotas(None if message.is_complete else entities)
        if message.is_complete or any(isinstance(change, ScramPut) for change in message.changes):
            self.on_credentials()
        changed = [key for key in {**before, **dict.fromkeys(keys)} if before.get(key) != self._configs.get(key)]
        self.client_metrics_version += any(kind == CONFIG_CLIENT_METRICS for kind, _ in changed)
        return changed + topics

    def _put(self, topic: TopicMetadata) -> bool:
        known = self._sent.get(topic.name) or self._topics.get(topic.name)
        if known is topic:
            return False
        self._sent.pop(topic.name, None)
        if known is not None:
            self.partition_count -= len(known.partitions)
            if known.topic_id == topic.topic_id:
                topic = _newest(known, topic)
            else:
                self._forget_id(known)
                self._note_deleted([known.topic_id])
                self._offline.pop(topic.name, None)  # The marks belong to the former topic of this name.
        self.partition_count += len(topic.partitions)
        self._topics[topic.name] = topic
        self._names_by_id[topic.topic_id] = topic.name
        if topic.name in self._offline:
            self._show(topic.name)
        return True

    def _remove(self, name: str, topic_id: bytes) -> bool:
        known = self._topics.get(name)
        if known is None or known.topic_id != topic_id:
            return False
        del self._topics[name]
        self._forget_id(known)
        self._note_deleted([topic_id])
        self._offline.pop(name, None)
        self._sent.pop(name, None)
        self.partition_count -= len(known.partitions)
        return True

    def _note_deleted(self, topic_ids: Iterable[bytes]) -> None:
        if self.is_of_cluster:
            self._deleted.update(dict.fromkeys(topic_ids))
            while len(self._deleted) > DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]

    def _forget_id(self, topic: TopicMetadata) -> None:
        """Removes the topic's id, unless an inconsistent message has given it to another topic."""
        if self._names_by_id.get(topic.topic_id) == topic.name:
            del self._names_by_id[topic.topic_id]

    def _put_configs(self, change: ConfigPut) -> None:
        key = (change.resource_type, change.name)
        if change.resource_type == CONFIG_TOPIC:
            topic = self._sent.pop(change.name, None) or self._topics.get(change.name)
            if topic is not None and topic.configs != change.configs:
                topic = replace(topic, configs=change.configs)
            if topic is not None:
                self._topics[change.name] = topic
                self._show(change.name)
        elif change.configs:
            self._configs[key] = change.configs
        else:
            self._configs.pop(key, None)

    def _put_scram(self, change: ScramPut) -> None:
        if change.credentials:
            self.scram[change.user] = change.credentials
        else:
            self.scram.pop(change.user, None)

    def _put_quotas(self, change: QuotaPut) -> None:
        if change.quotas:
            self.quotas[change.entity] = change.quotas
        else:
            self.quotas.pop(change.entity, None)


def _without(partition: PartitionMetadata, broker_id: int | None) -> PartitionMetadata:
    """Returns the partition with this broker's replica offline, and without a leader if the replica leads."""
    if broker_id is None or broker_id not in partition.replicas:
        return partition
    offline = tuple(dict.fromkeys((*partition.offline_replicas, broker_id)))
    leader = NO_LEADER if partition.leader == broker_id else partition.leader
    return replace(partition, leader=leader, offline_replicas=offline)


def _newest(known: TopicMetadata, topic: TopicMetadata) -> TopicMetadata:
    """Returns the topic with the newer state of each partition; the object `topic` itself if no state in it is older."""
    if len(known.partitions) <= len(topic.partitions) and not any(map(_is_older, topic.partitions, known.partitions)):
        return topic
    partitions = [*topic.partitions, *known.partitions[len(topic.partitions) :]]
    for index, old in enumerate(known.partitions):
        if _is_older(partitions[index], old):
            partitions[index] = old
    return replace(topic, partitions=tuple(partitions))


def _is_older(new: PartitionMetadata, known: PartitionMetadata) -> bool:
    return (new.leader_epoch, new.partition_epoch) < (known.leader_epoch, known.partition_epoch)
