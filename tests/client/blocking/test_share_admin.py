"""Questions and orders about share groups, on a broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.blocking.share_consumer import ShareConsumer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs, create_topic
from ottla.client.core.share_admin import alter_share_offsets, delete_share_offsets, describe_share_group, share_offsets
from ottla.testing.broker import Broker


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker() as broker, Cluster(broker.bootstrap_server) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two partitions, five records in the first."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    create_topic(cluster, name, partitions=2)
    with Producer(cluster) as producer:
        for number in range(5):
            producer.produce(name, b"%d" % number, partition=0)
        producer.flush()
    return name


@pytest.fixture
def group(cluster: Cluster) -> str:
    name = f"share-{uuid.uuid4().hex[:12]}"
    alter_configs(cluster, GROUP_RESOURCE, name, changes={"share.auto.offset.reset": "earliest"})
    return name


def test_a_group_with_a_member(cluster: Cluster, topic: str, group: str) -> None:
    with ShareConsumer(cluster, group, rack="r1", max_wait_ms=50) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment) < 2:
            consumer.poll(0.1)
        found = describe_share_group(cluster, group)
        (member,) = found.members
        assert (found.state, found.assignor, found.epoch > 0) == ("Stable", "simple", True)
        assert (member.client_id, member.rack, member.topics) == ("ottla", "r1", (topic,))
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        with pytest.raises(ApiError) as refused:
            alter_share_offsets(cluster, group, {TopicPartition(topic, 0): 0})
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(ApiError) as refused:
            delete_share_offsets(cluster, group, [topic])
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert describe_share_group(cluster, group).members == ()


def test_offsets_are_set_shown_and_forgotten(cluster: Cluster, topic: str, group: str) -> None:
    first, second, missing = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 9)
    altered = alter_share_offsets(cluster, group, {first: 2, missing: 0})
    refused = altered[missing]
    assert altered[first] is None and refused is not None and refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = share_offsets(cluster, group)
    assert (found[first].start_offset, found[first].lag, found[first].error) == (2, 3, None)
    assert found.get(second) is None or found[second].start_offset is None
    assert list(share_offsets(cluster, group, [first])) == [first]
    results = delete_share_offsets(cluster, group, [topic, "no-such-topic"])
    missing_topic = results["no-such-topic"]
    assert results[topic] is None and missing_topic is not None and missing_topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert share_offsets(cluster, group) == {}


def test_a_group_that_is_not_there(cluster: Cluster, topic: str) -> None:
    for order in (
        lambda: describe_share_group(cluster, "unknown"),
        lambda: delete_share_offsets(cluster, "unknown", [topic]),
    ):
        with pytest.raises(ApiError) as refused:
            order()
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
