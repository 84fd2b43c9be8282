"""The cluster's metadata as this broker serves it: what controllers have sent, nothing else.

Topics, partitions and brokers are the immutable values that arrived, not copies. A partition never goes back to an older leader epoch or
partition epoch of the same topic; whole messages from an older controller are refused before they come here (`control.py`).
"""

from __future__ import annotations

from dataclasses import replace

from ottla.base.cluster_metadata import CONFIG_TOPIC, ClusterMetadata, ConfigPut, PartitionMetadata, QuotaPut, TopicMetadata
from ottla.base.control_messages import UpdateConfigs, UpdateMetadata


class MetadataCache(ClusterMetadata):
    """`ClusterMetadata` that messages change."""

    def update(self, message: UpdateMetadata) -> tuple[list[str], list[str]]:
        """Returns the names of topics that are new or changed, and of those that are gone."""
        self.controller_id = message.controller_id
        self.brokers = {broker.broker_id: broker for broker in message.brokers}
        removed = [name for name, topic_id in message.removed if self._remove(name, topic_id)]
        if message.is_complete:
            named = {topic.name: topic.topic_id for topic in message.topics}
            for topic in list(self._topics.values()):
                if named.get(topic.name) != topic.topic_id and self._remove(topic.name, topic.topic_id):
                    removed.append(topic.name)
        changed = [topic.name for topic in message.topics if self._put(topic)]
        return changed, [name for name in removed if name not in self._topics]

    def update_configs(self, message: UpdateConfigs) -> list[tuple[int, str]]:
        """Returns the resources that have other settings now, and the topics that are named."""
        before = dict(self._configs)
        if message.is_complete:
            self._configs, self.quotas = {}, {}
        topics: list[tuple[int, str]] = []
        for change in message.changes:
            if not isinstance(change, ConfigPut):
                self._put_quotas(change)
                continue
            self._put_configs(change)
            if change.resource_type == CONFIG_TOPIC:
                topics.append((CONFIG_TOPIC, change.name))
        return [key for key in {**before, **self._configs} if before.get(key) != self._configs.get(key)] + topics

    def _put(self, topic: TopicMetadata) -> bool:
        known = self._topics.get(topic.name)
        if known is topic:
            return False
        if known is not None:
            self.partition_count -= len(known.partitions)
            if known.topic_id == topic.topic_id:
                topic = _newest(known, topic)
            else:
                del self._names_by_id[known.topic_id]
        self.partition_count += len(topic.partitions)
        self._topics[topic.name] = topic
        self._names_by_id[topic.topic_id] = topic.name
        return True

    def _remove(self, name: str, topic_id: bytes) -> bool:
        known = self._topics.get(name)
        if known is None or known.topic_id != topic_id:
            return False
        del self._topics[name]
        del self._names_by_id[topic_id]
        self.partition_count -= len(known.partitions)
        return True

    def _put_configs(self, change: ConfigPut) -> None:
        key = (change.resource_type, change.name)
        if change.resource_type == CONFIG_TOPIC:
            topic = self._topics.get(change.name)
            if topic is not None and topic.configs != change.configs:
                self._topics[change.name] = replace(topic, configs=change.configs)
        elif change.configs:
            self._configs[key] = change.configs
        else:
            self._configs.pop(key, None)

    def _put_quotas(self, change: QuotaPut) -> None:
        if change.quotas:
            self.quotas[change.entity] = change.quotas
        else:
            self.quotas.pop(change.entity, None)


def _newest(known: TopicMetadata, topic: TopicMetadata) -> TopicMetadata:
    """The topic with the newer state of each partition; the same object where nothing in it is older."""
    if len(known.partitions) <= len(topic.partitions) and not any(map(_is_older, topic.partitions, known.partitions)):
        return topic
    partitions = [*topic.partitions, *known.partitions[len(topic.partitions) :]]
    for index, old in enumerate(known.partitions):
        if _is_older(partitions[index], old):
            partitions[index] = old
    return replace(topic, partitions=tuple(partitions))


def _is_older(new: PartitionMetadata, known: PartitionMetadata) -> bool:
    return (new.leader_epoch, new.partition_epoch) < (known.leader_epoch, known.partition_epoch)
