"""What a broker serves while replicas of its own are offline: what controllers have sent, less those."""

from __future__ import annotations

from dataclasses import replace

from ottla.base.cluster_metadata import CONFIG_TOPIC, NO_LEADER, ConfigPut, PartitionMetadata, TopicMetadata
from ottla.base.control_messages import UpdateConfigs, UpdateMetadata
from ottla.base.types import TopicPartition
from ottla.cluster.metadata_cache import MetadataCache

FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))


def topic(topic_id: bytes = FIRST, *, leaders: tuple[int, ...] = (0, 1), epoch: int = 3) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(index=index, leader=leader, leader_epoch=epoch, replicas=(0, 1), isr=(0, 1))
        for index, leader in enumerate(leaders)
    )
    return TopicMetadata(name="t", topic_id=topic_id, partitions=partitions)


def updated(cache: MetadataCache, *topics: TopicMetadata) -> MetadataCache:
    cache.update(
        UpdateMetadata(controller_id=0, controller_epoch=1, broker_epoch=1, brokers=(), topics=topics, removed=(), is_complete=True)
    )
    return cache


def shown(cache: MetadataCache) -> list[tuple[int, tuple[int, ...]]]:
    known = cache.topic("t")
    assert known is not None
    return [(partition.leader, partition.offline_replicas) for partition in known.partitions]


def test_a_replica_that_cannot_be_served_leads_nothing() -> None:
    cache, sent = MetadataCache(), topic()
    updated(cache, sent).mark_offline(0, [TopicPartition("t", 0), TopicPartition("t", 1)])
    assert shown(cache) == [(NO_LEADER, (0,)), (1, (0,))], "partition 1 is led elsewhere"
    cache.mark_online([TopicPartition("t", 0)])
    assert shown(cache) == [(0, ()), (1, (0,))]
    cache.mark_online([TopicPartition("t", 1), TopicPartition("t", 7)])
    assert cache.topic("t") is sent, "what was sent is served as it is"


def test_what_is_sent_meanwhile_is_kept() -> None:
    cache = updated(MetadataCache(), topic())
    cache.mark_offline(0, [TopicPartition("t", 0)])
    newer = topic(epoch=4)
    updated(cache, newer)
    change = ConfigPut(CONFIG_TOPIC, "t", {"a": "b"})
    cache.update_configs(UpdateConfigs(controller_id=0, controller_epoch=1, broker_epoch=1, changes=(change,)))
    assert shown(cache)[0] == (NO_LEADER, (0,))
    cache.mark_online([TopicPartition("t", 0)])
    assert cache.topic("t") == replace(newer, configs={"a": "b"})


def test_a_mark_ends_with_its_topic() -> None:
    cache = updated(MetadataCache(), topic())
    cache.mark_offline(0, [TopicPartition("t", 0)])
    assert shown(updated(cache, topic(SECOND))) == [(0, ()), (1, ())]
    cache.mark_offline(0, [TopicPartition("t", 0)])
    updated(cache)
    assert cache.topic("t") is None and cache.partition_count == 0
    assert shown(updated(cache, topic(FIRST))) == [(0, ()), (1, ())]
