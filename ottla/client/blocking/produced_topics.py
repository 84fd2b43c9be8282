"""Keeps the number of partitions of the topics that a producer writes to. A topic may get more partitions while the producer runs."""

from __future__ import annotations

import time
from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.blocking.background_calls import BackgroundCalls, ignore
from ottla.client.blocking.cluster import Cluster
from ottla.wire.messages.metadata import MetadataResponseTopic

METADATA_AGE_S = 10.0
"""Age at which a topic's partition count is refreshed, in seconds. Kafka's clients place keys by the old count for up to 5 minutes."""
GROWTH_S = 1.0
"""For this time after a topic has grown, in seconds, some brokers may still answer with its old partitions."""


class ProducedTopics:
    """See the module. A background call refreshes the partitions of a topic when they are older than `metadata_age_s`."""

    def __init__(self, cluster: Cluster, background_calls: BackgroundCalls, metadata_age_s: float) -> None:
        self.known: dict[str, list[int]] = {}
        """The numbers of each topic's partitions, in order."""
        self._cluster = cluster
        self._background_calls = background_calls
        self._metadata_age_s = metadata_age_s
        self._learned_at: dict[str, float] = {}
        self._learned: dict[str, MetadataResponseTopic] = {}

    def partitions(self, topic: str) -> list[int]:
        """Returns the known partitions; asks for them the first time, and creates the topic if brokers do that."""
        return self.known.get(topic) or self._learn(topic)

    def look_for_growth(self, topic: str, now: float) -> None:
        """Adopts new partitions from the metadata cache. After `metadata_age_s` a background call refreshes the cache."""
        cached = self._cluster.metadata.topics.get(topic)
        if cached is not None and cached is not self._learned.get(topic):
            self._take_over(topic, cached)
        elif now >= self._learned_at.get(topic, now) + self._metadata_age_s:
            self._learned_at[topic] = now
            self._background_calls.begin(("growth", topic), partial(self._cluster.refresh, [topic]), failed=ignore)

    def check(self, target: TopicPartition) -> None:
        """Waits until the topic has this partition. Raises `KafkaError` after `GROWTH_S`. Without the check, a batch for a missing
        partition would wait for a leader until its deadline."""
        if target.partition in self.partitions(target.topic):
            return
        deadline = time.monotonic() + GROWTH_S
        while True:
            self._cluster.metadata.forget([target])
            if target.partition in self._learn(target.topic):
                return
            if time.monotonic() >= deadline:
                raise self._cluster.metadata.no_leader(target)
            time.sleep(GROWTH_S / 10)

    def _learn(self, topic: str) -> list[int]:
        self._learned_at[topic] = time.monotonic()
        return self._take_over(topic, self._cluster.topic(topic, auto_create=True))

    def _take_over(self, topic: str, learned: MetadataResponseTopic) -> list[int]:
        found = self.known[topic] = sorted(partition.partition_index for partition in learned.partitions)
        self._learned[topic] = learned
        return found
