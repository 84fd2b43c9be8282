"""The topic settings that elections and in-sync sets depend on."""

from __future__ import annotations

from typing import Protocol

from ottla.base.cluster_metadata import TopicMetadata
from ottla.base.config import BrokerConfig


class TopicRules(Protocol):
    """The topic settings that decisions about partitions need."""

    def is_unclean_allowed(self, topic: TopicMetadata) -> bool:
        """Returns `unclean.leader.election.enable`."""

    def in_sync_min(self, topic: TopicMetadata) -> int:
        """Returns `min.insync.replicas`."""


class ConfiguredRules:
    """`TopicRules` from the settings of the topics and the defaults of this broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def is_unclean_allowed(self, topic: TopicMetadata) -> bool:
        return bool(self._config.topic_value("unclean.leader.election.enable", topic.configs))

    def in_sync_min(self, topic: TopicMetadata) -> int:
        return int(self._config.topic_value("min.insync.replicas", topic.configs))
