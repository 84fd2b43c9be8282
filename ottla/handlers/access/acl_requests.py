"""Helpers for requests about ACLs: check the permission, and check and convert the rules and filters of a request as Kafka does."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from ottla.base.acls import ANY, CLUSTER_NAME, MATCH, AclFilter, AclOperation, Binding, Pattern, PatternType, Permission, ResourceType, Rule
from ottla.base.errors import ApiError, ErrorCode
from ottla.handlers.context import AccessRules, Broker, RequestContext
from ottla.handlers.rights import is_allowed_on_cluster
from ottla.security.acl_hosts import is_network

E = TypeVar("E", bound=IntEnum)


def rules_for(broker: Broker, request: RequestContext, operation: AclOperation) -> AccessRules:
    """Returns the rules if the principal has this permission on the cluster. The permission is checked first, as in Kafka, so that other
    clients learn nothing about the configuration. Raises `ApiError`."""
    if not is_allowed_on_cluster(broker, request, operation):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if broker.acl_rules is None:
        end = " on the broker" if operation is AclOperation.DESCRIBE else "."  # as in Kafka
        raise ApiError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{end}")
    return broker.acl_rules


def binding_of(asked: Any) -> Binding:
    """Converts an `AclCreation` to a rule. Raises `ApiError` INVALID_REQUEST."""
    pattern = Pattern(
        _known(ResourceType, asked.resource_type, "resourceType"),
        asked.resource_name,
        _known(PatternType, asked.resource_pattern_type, "patternType"),
    )
    operation, permission = _known(AclOperation, asked.operation, "operation"), _known(Permission, asked.permission_type, "permissionType")
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Resource name should not be empty")
    if ":" not in asked.principal:
        why = "no colon is present separating the principal type from the principal name"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Could not parse principal from `{asked.principal}` ({why})")
    if "/" in asked.host and not is_network(asked.host):  # as in Kafka, other hosts are not checked
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation of the host: {asked.host[:100]}")
    return Binding(pattern, Rule(asked.principal, asked.host, operation, permission))


def filter_of(asked: Any) -> AclFilter:
    """Converts the filter of a DescribeAcls or DeleteAcls request. Raises `ApiError` INVALID_REQUEST."""
    numbers = (
        (asked.resource_type_filter, (ANY, *ResourceType)),
        (asked.pattern_type_filter, (ANY, MATCH, *PatternType)),
    )
    if any(number not in allowed for number, allowed in numbers):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if asked.operation not in (ANY, *AclOperation) or asked.permission_type not in (ANY, *Permission):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _known(kinds: type[E], number: int, what: str) -> E:
    try:
        return kinds(number)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid {what} {number}") from None
