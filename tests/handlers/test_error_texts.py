"""Error messages as of Apache Kafka 4.3, because tools compare them. A Kafka broker answered the same requests with these texts."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    create_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
    update_features,
)
from ottla.wire.schema import Struct
from tests.handlers.admin_world import AdminWorld

NODE = 0
UPDATE = "The update failed for all features since the following feature had an error: Invalid update version "
ASSIGNMENT = "A manual partition assignment was specified, but "


def topic(partitions: int = -1, factor: int = -1, *assignment: tuple[int, list[int]]) -> Any:
    given = [create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in assignment]
    made = create_topics.CreatableTopic(name="new", num_partitions=partitions, replication_factor=factor, assignments=given)
    return create_topics.CreateTopicsRequest(topics=[made])


def configs(kind: int, name: str, key: str, operation: int, value: str) -> Any:
    entry = incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[entry])
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def described(kind: int, name: str) -> Any:
    resource = describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    return describe_configs.DescribeConfigsRequest(resources=[resource])


def moved(name: str, index: int, replicas: list[int]) -> Any:
    partition = alter_partition_reassignments.ReassignablePartition(partition_index=index, replicas=replicas)
    asked = alter_partition_reassignments.ReassignableTopic(name=name, partitions=[partition])
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[asked])


def elected(kind: int, name: str, index: int) -> Any:
    wanted = elect_leaders.TopicPartitions(topic=name, partitions=[index])
    return elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=[wanted])


def quota(*entity: tuple[str, str], key: str = "producer_byte_rate", value: float = 1.0) -> Any:
    named = [alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    entry = alter_client_quotas.EntryData(entity=named, ops=[alter_client_quotas.OpData(key=key, value=value)])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def twice(request: Any) -> Any:
    """Returns the request with each of its entries twice."""
    request.entries *= 2
    return request


def quotas(*kinds: str) -> Any:
    components = [describe_client_quotas.ComponentData(entity_type=kind, match_type=0, match="x") for kind in kinds]
    return describe_client_quotas.DescribeClientQuotasRequest(components=components)


def feature(name: str, level: int, kind: int) -> Any:
    update = update_features.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return update_features.UpdateFeaturesRequest(feature_updates=[update])


TEXTS = [
    (topic(1, 5), "Unable to replicate the partition 5 time(s): The target replication factor of 5 cannot be reached because only 1 "
     "broker(s) are registered or some brokers have all their log directories cordoned."),
    (topic(1, 1, (0, [NODE])), ASSIGNMENT + "replication factor was not set to -1."),
    (topic(1, -1, (0, [NODE])), ASSIGNMENT + "numPartitions was not set to -1."),
    (topic(-1, -1, (0, [77])), "The manual partition assignment includes broker 77, but no such broker is registered."),
    (topic(-1, -1, (0, [NODE, NODE])), "The manual partition assignment includes the broker 0 more than once."),
    (topic(-1, -1, (1, [NODE])), "partitions should be a consecutive 0-based integer sequence"),
    (topic(-1, -1, (0, [])), "The manual partition assignment includes an empty replica list."),
    (moved("nope", 0, [NODE]), "Unable to find a topic named nope."),
    (moved("t", 9, [NODE]), "Unable to find partition t:9."),
    (moved("t", 0, [77]), "The manual partition assignment includes broker 77, but no such broker is registered."),
    (moved("t", 0, [NODE, NODE]), "The manual partition assignment includes the broker 0 more than once."),
    (moved("t", 0, []), "The manual partition assignment includes an empty replica list."),
    (elected(0, "nope", 0), "No such topic as nope"),
    (elected(0, "t", 9), "No such partition as t-9"),
    (elected(5, "t", 0), "Unknown election type 5"),
    (configs(2, "t", "retention.ms", 2, "1"), "Can't APPEND to key retention.ms because its type is not LIST."),
    (configs(99, "t", "retention.ms", 0, "1"), "Unknown resource type 99"),
    (configs(4, str(NODE), "log.dirs", 0, "x"), "Cannot update these configs dynamically: [log.dirs]"),
    (configs(4, "", "node.id", 0, "4"), "Cannot update these configs dynamically: [node.id]"),
    (configs(32, "g", "consumer.session.timeout.ms", 0, "1"),
     "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms"),
    (configs(32, "g", "consumer.session.timeout.ms", 0, "9999999"),
     "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms"),
    (described(4, "x"), "Broker id must be an integer, but it is: x"),
    (described(8, ""), "Broker id must not be empty"),
    (quota(("nope", "u")), "Unhandled client quota entity type: nope"),
    (quota(), "Invalid empty client quota entity"),
    (twice(quota(("user", "u"))), "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"),
    (quota(("user", "")), "Empty user not supported"),
    (quota(("user", "u"), value=-1.0), "Quota producer_byte_rate must be greater than 0"),
    (quota(("ip", "999.1.1.1"), key="connection_creation_rate"), "999.1.1.1 is not a valid IP or resolvable host."),
    (quota(("ip", "1.1.1.1"), ("user", "u"), key="connection_creation_rate"),
     "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"),
    (quotas("nope"), "Unsupported entity type nope"),
    (quotas("user", "user"), "Entity type user cannot appear more than once in the filter."),
    (describe_cluster.DescribeClusterRequest(endpoint_type=2),
     "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
    (describe_cluster.DescribeClusterRequest(endpoint_type=9), "Unsupported endpoint type 9"),
    (feature("nope", 1, 1), UPDATE + "1 for feature nope. Local controller 0 does not support this feature."),
    (feature("group.version", 9, 1), UPDATE + "9 for feature group.version. Local controller 0 only supports versions 0-1"),
    (feature("group.version", 0, 1), UPDATE + "0 for feature group.version. Can't downgrade the version of this feature without setting "
     "the upgrade type to either safe or unsafe downgrade."),
    (feature("group.version", 1, 9), UPDATE + "1 for feature group.version. The controller does not support the given upgrade type."),
    (unregister_broker.UnregisterBrokerRequest(broker_id=77), "Broker ID 77 is not currently registered"),
]  # fmt: skip


def said(answer: Any) -> list[str]:
    """Returns the error messages in an answer."""
    if isinstance(answer, list | tuple):
        return [text for one in answer for text in said(one)]
    if not isinstance(answer, Struct):
        return []
    own = getattr(answer, "error_message", None)
    return [own] * bool(own) + [text for field in answer.__fields__ for text in said(getattr(answer, field.name))]


@pytest.mark.parametrize(("request_", "text"), TEXTS)
def test_a_refusal_has_the_text_of_kafka(request_: Any, text: str) -> None:
    world = AdminWorld()
    world.ask(create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name="t", num_partitions=2, replication_factor=1)]))
    assert said(world.ask(request_)) == [text]
