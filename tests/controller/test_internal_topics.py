"""The topics of the coordinators: created once, with Kafka's settings; and the log lines when they cannot be created."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, load
from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.controller.internal_topics import InternalTopics, new_internal_topic
from tests.controller.cluster import Cluster


def ensure(cluster: Cluster, topic: str) -> list[ErrorCode]:
    answers: list[ErrorCode] = []
    InternalTopics(cluster.loop, cluster.cache, cluster.config).ensure(topic, answers.append)
    return answers


@pytest.mark.parametrize(
    ("topic", "configs"),
    [
        (GROUP_METADATA_TOPIC, {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}),
        (
            TRANSACTION_STATE_TOPIC,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "unclean.leader.election.enable": "false",
                "segment.bytes": "104857600",
            },
        ),
        (
            SHARE_GROUP_STATE_TOPIC,
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
            },
        ),
    ],
)
def test_made_as_kafka_makes_them(topic: str, configs: dict[str, str]) -> None:
    cluster = Cluster()
    assert ensure(cluster, topic) == [ErrorCode.NONE]
    made = cluster.cache.topic(topic)
    assert made is not None
    assert (made.is_internal, len(made.partitions), made.configs) == (True, 50, configs)
    assert ensure(cluster, topic) == [ErrorCode.NONE]
    assert len(cluster.store.multis) == 4


def test_one_creation_answers_all_waiting_requests() -> None:
    cluster = Cluster()
    topics = InternalTopics(cluster.loop, cluster.cache, cluster.config)
    cluster.store.hold()
    answers: list[ErrorCode] = []
    for _ in range(3):
        topics.ensure(GROUP_METADATA_TOPIC, answers.append)
    assert answers == []
    cluster.store.release()
    assert answers == [ErrorCode.NONE] * 3
    assert len(cluster.store.multis) == 4


def test_too_few_brokers_is_what_clients_wait_for() -> None:
    config, _ = load(assignments=["offsets.topic.replication.factor=3"])
    assert ensure(Cluster(config=config), GROUP_METADATA_TOPIC) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_small_segments_go_by_the_internal_setting() -> None:
    config, _ = load(assignments=["offsets.topic.segment.bytes=1000"])
    configs = new_internal_topic(GROUP_METADATA_TOPIC, config).configs
    assert (configs.get("internal.segment.bytes"), configs.get("segment.bytes")) == ("1000", None)
    assert config.log_config({name: text for name, text in configs.items() if text}).segment_bytes == 1000
    assert BrokerConfig().offsets_topic_segment_bytes == 104857600
