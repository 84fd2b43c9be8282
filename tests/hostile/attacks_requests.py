"""Attacks by the content of requests: one name repeated, many names, small requests with very large answers, and many small requests."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import alter_client_quotas as quotas
from ottla.wire.messages import (
    create_topics,
    describe_configs,
    describe_producers,
    fetch,
    incremental_alter_configs,
    metadata,
    offset_fetch,
    produce,
)
from tests.clients.sample_world import batch
from tests.clients.wire_client import In
from tests.hostile.attacks import Target, attack
from tests.hostile.attacks_growth import make_topic, send_many
from tests.hostile.attacks_input import send_and_never_read

BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


@attack("DescribeConfigs of one broker, 10,000 times in a request")
def describe_one_broker(target: Target) -> None:
    resource = describe_configs.DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0", configuration_keys=None)
    frame = target.request(32, 4, resources=[resource] * target.part(10_000), include_synonyms=True, include_documentation=True)
    target.begin()
    target.send(frame)


@attack("DescribeConfigs of 20,000 groups that do not exist")
def describe_many_groups(target: Target) -> None:
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=f"group-{number}", configuration_keys=None)
        for number in target.numbers(20_000)
    ]
    frame = target.request(32, 4, resources=resources, include_synonyms=True, include_documentation=True)
    target.begin()
    target.send(frame)


@attack("OffsetFetch of all offsets of one group, 1,000 times in a request")
def fetch_one_group(target: Target) -> None:
    group = offset_fetch.OffsetFetchRequestGroup(group_id="group", topics=None)
    frame = target.request(9, 8, groups=[group] * target.part(1000))
    target.begin()
    target.send(frame)


@attack("IncrementalAlterConfigs of 8,000 resources")
def alter_many_configs(target: Target) -> None:
    resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(number), configs=[])
        for number in target.numbers(8000)
    ]
    frame = target.request(44, 1, resources=resources, validate_only=True)
    target.begin()
    target.send(frame)


@attack("DescribeProducers of 2 million partitions")
def many_numbers(target: Target) -> None:
    topic = describe_producers.TopicRequest(name="world", partition_indexes=list(target.numbers(2_000_000)))
    frame = target.request(61, 0, topics=[topic])
    target.begin()
    target.send(frame)


@attack("AlterClientQuotas of 25,641 clients, nothing altered")
def alter_many_quotas(target: Target) -> None:
    entries = [
        quotas.EntryData(
            entity=[quotas.EntityData(entity_type="client-id", entity_name=str(number))],
            ops=[quotas.OpData(key="producer_byte_rate", value=1e6)],
        )
        for number in target.numbers(25_641)
    ]
    frame = target.request(49, 1, entries=entries, validate_only=True)
    target.begin()
    target.send(frame)


@attack("CreateTopics of 9,900 names with an underscore, nothing created")
def create_many_topics(target: Target) -> None:
    topics = [create_topics.CreatableTopic(name=f"a_{number}", num_partitions=1, replication_factor=1) for number in target.numbers(9900)]
    frame = target.request(19, 7, topics=topics, validate_only=True)
    target.begin()
    target.send(frame)


@attack("2,826 Metadata requests of 2,000 partitions in one read")
def many_requests_in_a_read(target: Target) -> None:
    make_topic(target, "wide", 2000)
    frame = target.request(3, 8, topics=[metadata.MetadataRequestTopic(name="wide")])
    target.begin()
    target.send(*[frame] * target.part(2826))


@attack("2,826 Metadata requests of 5,000 partitions in one read, of 20 connections that never read")
def many_requests_never_read(target: Target) -> None:
    make_topic(target, "wide", target.part(5000))
    frame = target.request(3, 8, topics=[metadata.MetadataRequestTopic(name="wide")])
    target.begin()
    for _ in range(20):
        send_and_never_read(target, frame * target.part(2826), 1)
    target.hold(200)


@attack("a fetch of 10 MB of names, then 20 empty ones of its session")
def large_session(target: Target) -> None:
    topics = [fetch.FetchTopic(topic=f"t{number}", partitions=[fetch.FetchPartition(partition=0)]) for number in target.numbers(150_000)]
    frame = target.request(1, 12, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0, topics=topics)
    empty = target.request(1, 12, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=1, session_epoch=1, topics=[])
    target.begin()
    target.send(frame, *[empty] * 20)


@attack("a fetch of 10 MB of names in each of 1,000 connections, which close, then 20 empty ones of the last session")
def large_sessions(target: Target) -> None:
    """Opens the maximum number of fetch sessions."""
    topics = [fetch.FetchTopic(topic=f"t{number}", partitions=[fetch.FetchPartition(partition=0)]) for number in target.numbers(150_000)]
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
    frame = target.request(1, 12, session_id=0, session_epoch=0, topics=topics, **fields)
    target.begin()
    for _ in target.numbers(1000):
        assert target.send(frame) != [None]
    empty = target.request(1, 12, session_id=1, session_epoch=1, topics=[], **fields)
    target.send(*[empty] * 20)


@attack("a fetch of 200 topics with names of 20 kB in each of 400 connections, which close")
def sessions_of_long_names(target: Target) -> None:
    """Opens fetch sessions with long topic names, which would take 4 MB each."""
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
    target.begin()
    for number in target.numbers(400):
        names = [f"{number}-{name}".rjust(20_000, "t") for name in range(200)]
        topics = [fetch.FetchTopic(topic=name, partitions=[fetch.FetchPartition(partition=0)]) for name in names]
        assert target.send(target.request(1, 12, session_id=0, session_epoch=0, topics=topics, **fields)) != [None]


@attack("50 connections of 990 waiting fetches each of one partition, and 20 produces to it")
def many_waiting_fetches(target: Target) -> None:
    partition = fetch.FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic=target.world.topic, partitions=[partition])]
    waiting = target.request(1, 12, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1 << 20, session_epoch=-1, topics=topics)
    for _ in range(50):
        target.connect().send(waiting * target.part(990))
    target.client.ask(target.world.produce(In(9), target.world.topic), 9)
    target.begin()
    for _ in range(20):
        target.client.ask(target.world.produce(In(9), target.world.topic), 9)


@attack("DescribeProducers of a partition of 100,000 invented producers, 20 times")
def many_producers(target: Target) -> None:
    make_topic(target, "invented", 1)
    send_many(target, ((invented(number), 9) for number in target.numbers(100_000)))
    topic = describe_producers.TopicRequest(name="invented", partition_indexes=[0])
    frame = target.request(61, 0, topics=[topic])
    target.begin()
    target.send(*[frame] * 20)


def invented(number: int) -> Any:
    records = batch(1, producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0)
    data = produce.PartitionProduceData(index=0, records=memoryview(records))
    return produce.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[produce.TopicProduceData(name="invented", partition_data=[data])])
