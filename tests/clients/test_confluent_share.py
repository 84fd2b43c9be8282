"""librdkafka's share consumer (a preview): records are acquired, accepted, released, rejected, and delivered to another member."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs, create_topic
from ottla.client.core.share_admin import describe_share_group, share_offsets
from tests.clients.broker_process import BrokerProcess, eventually

Sharing = Callable[..., Any]


@pytest.fixture
def names(broker: BrokerProcess, fresh: Callable[[str], str]) -> tuple[str, str]:
    """Makes a topic with six records, and a group that begins with the first record."""
    topic, group = fresh("shared"), fresh("sharers")
    with Cluster(broker.address) as cluster:
        create_topic(cluster, topic, partitions=1)
        alter_configs(cluster, GROUP_RESOURCE, group, changes={"share.auto.offset.reset": "earliest"})
        with Producer(cluster) as producer:
            for number in range(6):
                producer.produce(topic, b"%d" % number)
            producer.flush()
    return topic, group


@pytest.fixture
def sharer(broker: BrokerProcess, names: tuple[str, str]) -> Callable[..., Any]:
    def make(**settings: object) -> Any:
        consumer = ShareConsumer({"bootstrap.servers": broker.address, "group.id": names[1], **settings})
        consumer.subscribe([names[0]])
        return consumer

    return make


def take(consumer: Any, count: int, seconds: float = 60) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.poll(0.2):
            assert message.error() is None, message.error()
            found.append(message)
    return found


def seen(messages: list[Message]) -> list[tuple[int | None, int | None]]:
    return [(message.offset(), message.delivery_count()) for message in messages]


def test_acknowledged_by_hand(sharer: Sharing) -> None:
    """A released record is delivered again with a higher delivery count; a rejected one is not."""
    calls: list[Any] = []
    with sharer(**{"share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: calls.append((sorted(*offsets.values()), error)))
        first = take(consumer, 6)
        assert seen(first) == [(offset, 1) for offset in range(6)]
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
        for number, message in enumerate(first):
            consumer.acknowledge(message, kinds[number % 3])
        assert list(consumer.commit_sync(10.0).values()) == [None]
        again = take(consumer, 2)
        assert seen(again) == [(1, 2), (4, 2)]
        for message in again:
            consumer.acknowledge(message)
        assert list(consumer.commit_sync(10.0).values()) == [None]
        assert take(consumer, 1, seconds=0.5) == []
    assert calls == [([0, 1, 2, 3, 4, 5], None), ([1, 4], None)]


def test_the_next_poll_accepts_and_closing_gives_back(sharer: Sharing, broker: BrokerProcess, names: tuple[str, str]) -> None:
    with sharer() as consumer:
        assert len(take(consumer, 6)) == 6
        assert take(consumer, 1, seconds=0.3) == []
        with Cluster(broker.address) as cluster:
            (member,) = describe_share_group(cluster, names[1]).members
            assert member.assignment == (TopicPartition(names[0], 0),)
            eventually(lambda: share_offsets(cluster, names[1])[TopicPartition(names[0], 0)].lag == 0)
            with Producer(cluster) as producer:
                producer.produce(names[0], b"6")
                producer.flush()
        assert seen(take(consumer, 1)) == [(6, 1)]
    with sharer() as consumer:
        assert seen(take(consumer, 1)) == [(6, 2)]
    with Cluster(broker.address) as cluster:
        eventually(lambda: describe_share_group(cluster, names[1]).state == "Empty")
