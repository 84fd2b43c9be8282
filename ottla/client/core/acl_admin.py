"""Reads, adds and removes access rules (ACLs), as conversations (`conversation.py`) on a `ClusterCore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.acls import AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.base.errors import ErrorCode, error_code
from ottla.client.core.admin import check, checked
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import KafkaError, refused


@operation
def describe_acls(cluster: ClusterCore, wanted: AclFilter) -> Conversation[list[Binding]]:
    """Returns the rules that match the filter, sorted by pattern. Raises `KafkaError`."""
    from ottla.wire.messages import describe_acls as wire

    answer = yield from checked(cluster.ask_any(wire.DescribeAclsRequest(**_fields(wanted))), "access rules")
    return sorted(Binding(_pattern(resource), _rule(acl)) for resource in answer.resources for acl in resource.acls)


@operation
def create_acls(cluster: ClusterCore, bindings: Sequence[Binding]) -> Conversation[None]:
    """Adds rules; a rule may exist already. Raises `KafkaError` for the first refused rule. The other rules may have been added."""
    from ottla.wire.messages import create_acls as wire

    creations = [
        wire.AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for pattern, rule in bindings
    ]
    answer = yield from cluster.ask_any(wire.CreateAclsRequest(creations=creations))
    for result in answer.results:
        check(result.error_code, result.error_message, "access rules")


@operation
def delete_acls(cluster: ClusterCore, filters: Sequence[AclFilter]) -> Conversation[list[Binding]]:
    """Removes the rules that match any of the filters, and returns each removed rule once. Raises `KafkaError`."""
    from ottla.wire.messages import delete_acls as wire

    answer = yield from cluster.ask_any(wire.DeleteAclsRequest(filters=[wire.DeleteAclsFilter(**_fields(each)) for each in filters]))
    removed: dict[Binding, None] = {}
    for result in answer.filter_results:
        check(result.error_code, result.error_message, "access rules")
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message, "access rules")
            removed[Binding(_pattern(acl), _rule(acl))] = None
    return sorted(removed)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _pattern(entry: Any) -> Pattern:
    return Pattern(ResourceType(entry.resource_type), entry.resource_name, PatternType(entry.pattern_type))


def _rule(acl: Any) -> Rule:
    return Rule(acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type))


@operation
def allowed_operations(cluster: ClusterCore, kind: ResourceType, name: str) -> Conversation[list[AclOperation] | None]:
    """Returns the operations that this client may do with a resource. Returns None for an unknown topic or group, for resources other than
    the cluster, topics and groups, and if the broker does not send the operations of a topic or group. If it does not send the operations
    of the cluster, the list is empty. Raises `KafkaError` for any other refusal, such as INVALID_GROUP_ID.

    If the client may not describe a topic or group, the list is empty, even if it has one of the few permissions that do not imply
    Describe.
    """
    ask = {
        ResourceType.CLUSTER: _allowed_on_cluster,
        ResourceType.TOPIC: _allowed_on_topic,
        ResourceType.GROUP: _allowed_on_group,
    }.get(kind)
    if ask is None:
        return None
    bits = yield from ask(cluster, name)
    return None if bits is None else [operation for operation in AclOperation if bits >> operation & 1]


def _allowed_on_cluster(cluster: ClusterCore, _name: str) -> Conversation[int | None]:
    from ottla.wire.messages import describe_cluster as wire

    answer = yield from checked(cluster.ask_any(wire.DescribeClusterRequest(include_cluster_authorized_operations=True)), "the cluster")
    bits: int = answer.cluster_authorized_operations
    return bits if bits > 0 else 0


def _allowed_on_topic(cluster: ClusterCore, name: str) -> Conversation[int | None]:
    from ottla.wire.messages import metadata as wire

    asked = wire.MetadataRequest(
        topics=[wire.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    (topic,) = (yield from cluster.ask_any(asked)).topics
    return _bits(topic.error_code, topic.topic_authorized_operations, name)


def _allowed_on_group(cluster: ClusterCore, name: str) -> Conversation[int | None]:
    from ottla.wire.messages import describe_groups as wire

    try:
        asked = wire.DescribeGroupsRequest(groups=[name], include_authorized_operations=True)
        answer = yield from cluster.ask_coordinator(GROUP, name, asked)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return 0
        raise
    (group,) = answer.groups
    return _bits(group.error_code, group.authorized_operations, name)


def _bits(code: int, bits: int, name: str) -> int | None:
    if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED):
        return 0
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND):
        return None
    if code:
        raise refused(error_code(code), name)
    return bits if bits > 0 else None
