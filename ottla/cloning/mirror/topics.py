"""Finds the topics of a mirror at the source, and gives the target's topics the same settings and numbers of partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID, uuid_to_text
from ottla.client.blocking.client import Client
from ottla.client.core import admin
from ottla.client.core.operations import TopicInfo
from ottla.client.errors import AuthorizationError, KafkaError, UnknownTopicError
from ottla.cloning.mirror.target import MirroredTopic
from ottla.cloning.plan import CloneError
from ottla.cloning.source import OF_PLACES, TOPIC_CONFIG_SOURCE, described, own_settings

UNKNOWN_SECONDS_MAX = 5.0
"""A topic that the source does not know for 5 s is deleted. A broker that has just started may not know a topic yet."""


class TopicFollower:
    """Gives the target's topics the settings and partitions of the source's topics. `settings` replace the source's settings; `omitted`
    settings are not copied.
    """

    def __init__(
        self, source: Client, target: Client, settings: Mapping[str, str], omitted: frozenset[str] = frozenset()
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._omitted = omitted
        self.notes: dict[str, list[str]] = {}
        """Notes about the settings of each topic."""

    def found(self, name: str) -> tuple[MirroredTopic, int]:
        """Returns a topic of the source, and the largest leader epoch of its partitions. Raises `CloneError` and `ClientError`."""
        info = described(self._source, name)
        return MirroredTopic(name, self._identity(info), len(info.partitions)), _newest_epoch(info)

    def newest_epoch(self, name: str) -> int:
        """Returns the largest leader epoch of a topic of the source. Raises `ClientError`."""
        return _newest_epoch(described(self._source, name))

    def settings(self, name: str) -> dict[str, str]:
        """Returns the settings that the target's topic gets. Raises `ClientError`."""
        notes: list[str] = []
        found = {**own_settings(self._source, name, notes), **self._settings}
        self.notes[name] = notes
        return {setting: value for setting, value in found.items() if setting not in self._omitted}

    def check(self, topic: MirroredTopic) -> None:
        """Raises `CloneError` if the source no longer has this topic, and `ClientError`."""
        try:
            info = described(self._source, topic.name)
        except UnknownTopicError:
            now_s = time.monotonic()
            topic.unknown_since_s = now_s if topic.unknown_since_s is None else topic.unknown_since_s
            if now_s < topic.unknown_since_s + UNKNOWN_SECONDS_MAX:
                raise
            raise CloneError(f"topic {topic.name!r} was deleted at the source; the target keeps its records") from None
        topic.unknown_since_s = None
        if self._identity(info) != topic.source:
            raise CloneError(f"topic {topic.name!r} was deleted and created again at the source; the target keeps the old records")

    def follow(self, topic: MirroredTopic) -> bool:
        """Gives the target's topic new partitions and changed settings. Returns whether there are new partitions. Raises `ClientError`."""
        count = len(described(self._source, topic.name).partitions)
        if count > len(self._target.describe_topic(topic.name).partitions):
            self._target.add_partitions(topic.name, count)
        changes, deletions = self._differences(topic.name)
        if changes or deletions:
            try:
                self._target.alter_topic_configs(topic.name, changes, deletions=deletions)
            except (AuthorizationError, KafkaError) as error:
                if error.code not in (ErrorCode.INVALID_CONFIG, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                    raise
                self.notes[topic.name].append(f"settings of {topic.name!r} do not follow: {error}")
        has_new, topic.partition_count = count > topic.partition_count, count
        return has_new

    def _differences(self, name: str) -> tuple[dict[str, str], Sequence[str]]:
        wanted = self.settings(name)
        found = admin.describe_configs(self._target.cluster, admin.TOPIC_RESOURCE, [name])[name]
        if isinstance(found, KafkaError):
            raise found
        own = {one.name: one.value for one in found if one.config_source == TOPIC_CONFIG_SOURCE}
        changes = {key: value for key, value in wanted.items() if own.get(key) != value}
        has_answer = not any("DESCRIBE_CONFIGS" in note for note in self.notes[name])
        return changes, [key for key in own if key not in wanted and key not in OF_PLACES] if has_answer else []

    def _identity(self, info: TopicInfo) -> str:
        topic_id = uuid_to_text(info.topic_id) if info.topic_id != ZERO_UUID else info.name
        return f"{self._source.cluster_id or ''}:{topic_id}"


def _newest_epoch(info: TopicInfo) -> int:
    return max((0, *(one.leader_epoch for one in info.partitions)))
