"""Attacks by the content of requests: one name repeated, many names, answers far larger than what asks for them, many small requests."""

from __future__ import annotations

from ottla.wire.messages import describe_configs, describe_producers, incremental_alter_configs, offset_fetch
from tests.hostile.attacks import Target, attack

BROKER_RESOURCE = 4
GROUP_RESOURCE = 32


@attack("DescribeConfigs of one broker, 10,000 times in a request")
def describe_one_broker(target: Target) -> None:
    resource = describe_configs.DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="0", configuration_keys=None)
    frame = target.request(32, 4, resources=[resource] * 10_000, include_synonyms=True, include_documentation=True)
    target.begin()
    target.send(frame)


@attack("DescribeConfigs of 20,000 groups that do not exist")
def describe_many_groups(target: Target) -> None:
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=f"group-{number}", configuration_keys=None)
        for number in range(20_000)
    ]
    frame = target.request(32, 4, resources=resources, include_synonyms=True, include_documentation=True)
    target.begin()
    target.send(frame)


@attack("OffsetFetch of all offsets of one group, 1,000 times in a request")
def fetch_one_group(target: Target) -> None:
    group = offset_fetch.OffsetFetchRequestGroup(group_id="group", topics=None)
    frame = target.request(9, 8, groups=[group] * 1000)
    target.begin()
    target.send(frame)


@attack("IncrementalAlterConfigs of 8,000 resources")
def alter_many_configs(target: Target) -> None:
    resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=str(number), configs=[])
        for number in range(8000)
    ]
    frame = target.request(44, 1, resources=resources, validate_only=True)
    target.begin()
    target.send(frame)


@attack("DescribeProducers of 2 million partitions")
def many_numbers(target: Target) -> None:
    topic = describe_producers.TopicRequest(name="world", partition_indexes=list(range(2_000_000)))
    frame = target.request(61, 0, topics=[topic])
    target.begin()
    target.send(frame)
