"""Access rules (ACLs), as procedures on a `ClusterCore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.base.acls import AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.client.core.admin import check
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.procedure import Procedure


def describe_acls(cluster: ClusterCore, wanted: AclFilter) -> Procedure[list[Binding]]:
    """The rules that the filter means, by pattern. Raises `KafkaError`."""
    from ottla.wire.messages import describe_acls as wire

    answer = yield from cluster.ask_any(
        wire.DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
    )
    check(answer.error_code, answer.error_message, "access rules")
    found = []
    for resource in answer.resources:
        pattern = Pattern(ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type))
        found += [Binding(pattern, _rule(acl)) for acl in resource.acls]
    return sorted(found)


def create_acls(cluster: ClusterCore, bindings: Sequence[Binding]) -> Procedure[None]:
    """Adds rules; those that are there already are no error. Raises `KafkaError` for the first that is refused; others may be added."""
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


def delete_acls(cluster: ClusterCore, filters: Sequence[AclFilter]) -> Procedure[list[Binding]]:
    """Removes the rules that any of the filters means; returns each once. Raises `KafkaError`."""
    from ottla.wire.messages import delete_acls as wire

    wanted = [
        wire.DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.name,
            pattern_type_filter=each.pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in filters
    ]
    answer = yield from cluster.ask_any(wire.DeleteAclsRequest(filters=wanted))
    removed: dict[Binding, None] = {}
    for result in answer.filter_results:
        check(result.error_code, result.error_message, "access rules")
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message, "access rules")
            pattern = Pattern(ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type))
            removed[Binding(pattern, _rule(acl))] = None
    return sorted(removed)


def _rule(acl: Any) -> Rule:
    return Rule(acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type))
