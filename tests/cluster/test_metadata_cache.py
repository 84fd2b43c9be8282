"""The metadata cache of a broker: it has the values that controllers sent, never goes back to older ones of a topic, and shows the broker's
own offline replicas as offline."""

from __future__ import annotations

from dataclasses import replace

from ottla.base.cluster_metadata import (
    CONFIG_GROUP,
    CONFIG_TOPIC,
    NO_LEADER,
    BrokerMetadata,
    ConfigPut,
    PartitionMetadata,
    QuotaPut,
    TopicMetadata,
)
from ottla.base.control_messages import UpdateConfigs, UpdateMetadata
from ottla.base.types import TopicPartition
from ottla.cluster.metadata_cache import GONE_SHOWN_MS, MetadataCache
from tests.fakes import ManualClock

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


BROKER = BrokerMetadata(broker_id=1, endpoints={}, epoch=7)


def made(name: str, *epochs: tuple[int, int], topic_id: int = 1) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(index=index, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,), partition_epoch=partition_epoch)
        for index, (epoch, partition_epoch) in enumerate(epochs)
    )
    return TopicMetadata(name=name, topic_id=bytes([topic_id]) * 16, partitions=partitions)


def update(
    cache: MetadataCache, *topics: TopicMetadata, removed: list[tuple[str, bytes]] | None = None, is_complete: bool = False
) -> tuple[list[str], list[str]]:
    return cache.update(
        UpdateMetadata(
            controller_id=1,
            controller_epoch=1,
            broker_epoch=1,
            topics=topics,
            brokers=[BROKER],
            removed=removed or [],
            is_complete=is_complete,
        )
    )


def configs(cache: MetadataCache, *changes: ConfigPut | QuotaPut, is_complete: bool = False) -> list[tuple[int, str]]:
    return cache.update_configs(
        UpdateConfigs(controller_id=1, controller_epoch=1, broker_epoch=1, changes=changes, is_complete=is_complete)
    )


def test_topics_are_the_objects_that_arrived() -> None:
    cache, first = MetadataCache(), made("a", (0, 0), (0, 0))
    assert update(cache, first) == (["a"], [])
    assert cache.topic("a") is first and cache.topic_by_id(first.topic_id) is first
    assert (cache.partition_count, cache.brokers, cache.controller_id) == (2, {1: BROKER}, 1)
    assert update(cache, first) == ([], [])


def test_a_partition_never_goes_back() -> None:
    cache, first = MetadataCache(), made("a", (2, 5), (3, 1))
    update(cache, first)
    update(cache, made("a", (2, 4), (4, 0)))
    found = cache.topic("a")
    assert found is not None
    assert [(part.leader_epoch, part.partition_epoch) for part in found.partitions] == [(2, 5), (4, 0)]
    update(cache, made("a", (2, 6)))
    found = cache.topic("a")
    assert found is not None and [part.partition_epoch for part in found.partitions] == [6, 0]
    assert cache.partition_count == 2


def test_a_topic_made_anew_replaces_the_old_one() -> None:
    cache, old, new = MetadataCache(), made("a", (9, 9), (9, 9)), made("a", (0, 0), topic_id=2)
    update(cache, old)
    assert update(cache, new, removed=[("a", old.topic_id)]) == (["a"], [])
    assert (cache.topic("a"), cache.topic_by_id(old.topic_id), cache.partition_count) == (new, None, 1)
    assert update(cache, removed=[("a", old.topic_id)]) == ([], []), "a late message about the old one"
    assert update(cache, removed=[("a", new.topic_id)]) == ([], ["a"])
    assert (cache.topic("a"), cache.partition_count) == (None, 0)


def test_complete_metadata_removes_what_it_does_not_name() -> None:
    cache = MetadataCache()
    update(cache, made("a", (0, 0)), made("b", (0, 0), topic_id=2))
    assert update(cache, made("b", (0, 1), topic_id=2), is_complete=True) == (["b"], ["a"])
    assert [found.name for found in cache.topics()] == ["b"] and cache.partition_count == 1


def test_settings_and_quotas() -> None:
    cache = MetadataCache()
    update(cache, made("a", (0, 0)))
    user = (("user", "u"),)
    changed = configs(cache, ConfigPut(CONFIG_GROUP, "g", {"x": "1"}), ConfigPut(CONFIG_TOPIC, "a", {"y": "2"}), QuotaPut(user, {"q": 1.0}))
    assert changed == [(CONFIG_GROUP, "g"), (CONFIG_TOPIC, "a")]
    found = (cache.configs(CONFIG_GROUP, "g"), cache.configs(CONFIG_TOPIC, "a"), cache.quotas)
    assert found == ({"x": "1"}, {"y": "2"}, {user: {"q": 1.0}})
    assert configs(cache, ConfigPut(CONFIG_GROUP, "g", {"x": "1"})) == []
    assert configs(cache, QuotaPut(user, {}), is_complete=True) == [(CONFIG_GROUP, "g")]
    assert (cache.configs(CONFIG_GROUP, "g"), cache.quotas) == ({}, {})


def test_settings_that_came_with_the_topic_leave_it_the_same_object() -> None:
    cache = MetadataCache()
    first = replace(made("a", (0, 0)), configs={"y": "2"})
    update(cache, first)
    configs(cache, ConfigPut(CONFIG_TOPIC, "a", {"y": "2"}))
    assert cache.topic("a") is first


def test_two_topics_of_one_id_do_not_break_the_cache() -> None:
    """No controller sends such topics; if some peer does, lookups must still work."""
    cache = updated(MetadataCache(), topic(), replace(topic(), name="other"))
    assert cache.topic_by_id(FIRST) == replace(topic(), name="other")
    updated(cache, replace(topic(), name="other"))
    assert cache.topic("t") is None and cache.topic_by_id(FIRST) == replace(topic(), name="other")
    updated(cache)
    assert cache.topic_by_id(FIRST) is None and cache.partition_count == 0


def test_a_topic_that_was_not_sent_yet_is_not_a_deleted_one() -> None:
    cache, other = MetadataCache(), replace(topic(bytes(16)), name="other")
    assert cache.is_deleted(FIRST), "alone, a broker is sent everything at once"
    cache.is_of_cluster = True
    assert not cache.is_deleted(FIRST)
    updated(cache, topic(), other)
    updated(cache, topic(SECOND), other)
    assert cache.is_deleted(FIRST) and not cache.is_deleted(SECOND) and not cache.is_deleted(other.topic_id)
    updated(cache, topic(SECOND))
    assert cache.is_deleted(other.topic_id)
    never_known = UpdateMetadata(controller_id=0, controller_epoch=1, broker_epoch=1, brokers=(), topics=(), removed=[("n", b"n" * 16)])
    cache.update(never_known)
    assert cache.is_deleted(b"n" * 16)


def test_a_broker_that_has_gone_is_shown_for_a_while() -> None:
    """A client that learns of the new leaders and of the missing broker at the same time may lose a second."""
    clock = ManualClock()
    cache = MetadataCache(now_ms=clock.monotonic_ms)

    def live(*brokers: int) -> None:
        known = tuple(BrokerMetadata(broker_id=number, endpoints={"P": (f"host-{number}", 9092)}, epoch=number) for number in brokers)
        cache.update(UpdateMetadata(controller_id=0, controller_epoch=1, broker_epoch=1, brokers=known, topics=(), is_complete=True))

    def gone() -> list[int]:
        return [broker.broker_id for broker in cache.recently_gone()]

    live(1, 2, 3)
    assert gone() == []
    live(1)
    assert gone() == [2, 3] and list(cache.brokers) == [1]
    clock.advance(GONE_SHOWN_MS - 1)
    live(1, 3)
    assert gone() == [2]
    clock.advance(1)
    assert gone() == []
    live(1, 2, 3)
    assert gone() == []
