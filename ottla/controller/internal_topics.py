"""Creates the coordinators' topics at first use, with Kafka's settings. `__consumer_offsets` and `__transaction_state` are compacted. The
share coordinators delete obsolete records of `__share_group_state`.

`ensure` may be called again while a topic is being created; the result of the creation answers all callers.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.controller.api import Controller, NewTopic, TopicResult

Done = Callable[[ErrorCode], None]
SEGMENT_BYTES_LEAST = 1 << 20


class InternalTopics:
    """Creates `__consumer_offsets`, `__transaction_state` and `__share_group_state` at first use."""

    def __init__(self, controller: Controller, metadata: ClusterMetadata, config: BrokerConfig) -> None:
        self._controller = controller
        self._metadata = metadata
        self._config = config
        self._waiting: dict[str, list[Done]] = {}

    def ensure(self, topic: str, done: Done) -> None:
        """Calls `done(NONE)` once the topic exists, or `done(COORDINATOR_NOT_AVAILABLE)` if it could not be created."""
        if topic in self._waiting:
            self._waiting[topic].append(done)
        elif self._metadata.topic(topic) is not None:
            done(ErrorCode.NONE)
        else:
            self._waiting[topic] = [done]
            self._controller.create_topics([new_internal_topic(topic, self._config)], False, self._on_created)

    def _on_created(self, results: list[TopicResult]) -> None:
        (result,) = results
        is_there = result.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        # Kafka's clients retry after this error.
        code = ErrorCode.NONE if is_there else ErrorCode.COORDINATOR_NOT_AVAILABLE
        for done in self._waiting.pop(result.name):
            done(code)


def new_internal_topic(topic: str, config: BrokerConfig) -> NewTopic:
    """Returns the request that creates an internal topic with the broker's settings for it."""
    configs: dict[str, str | None] = {"cleanup.policy": "compact"}
    if topic == GROUP_METADATA_TOPIC:
        count, replicas = config.offsets_topic_num_partitions, config.offsets_topic_replication_factor
        segment_bytes = config.offsets_topic_segment_bytes
        configs["compression.type"] = "producer"
    elif topic == SHARE_GROUP_STATE_TOPIC:
        count, replicas = config.share_coordinator_state_topic_num_partitions, config.share_coordinator_state_topic_replication_factor
        segment_bytes = config.share_coordinator_state_topic_segment_bytes
        configs["cleanup.policy"] = "delete"
        configs["retention.ms"] = "-1"
        configs["compression.type"] = "producer"
        configs["min.insync.replicas"] = str(config.share_coordinator_state_topic_min_isr)
    else:
        assert topic == TRANSACTION_STATE_TOPIC, f"{topic} is not an internal topic of this broker"
        count, replicas = config.transaction_state_log_num_partitions, config.transaction_state_log_replication_factor
        segment_bytes = config.transaction_state_log_segment_bytes
        configs["compression.type"] = "uncompressed"
        configs["min.insync.replicas"] = str(config.transaction_state_log_min_isr)
        configs["unclean.leader.election.enable"] = "false"
    # A topic's segment.bytes has a minimum; the broker's setting for these topics has none.
    name = "segment.bytes" if segment_bytes >= SEGMENT_BYTES_LEAST else "internal.segment.bytes"
    configs[name] = str(segment_bytes)
    return NewTopic(name=topic, num_partitions=count, replication_factor=replicas, configs=configs)
