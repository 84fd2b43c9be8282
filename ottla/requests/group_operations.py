"""What may this principal do with a group, as the bits of an "authorized operations" field (KIP-430), and are its groups let in at all?"""

from __future__ import annotations

from ottla.requests.context import Broker, RequestContext
from ottla.security.acl import AclOperation, ResourceType

GROUP_OPERATIONS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)


def authorized_operations(broker: Broker, request: RequestContext, group_id: str) -> int:
    bits = 0
    for operation in GROUP_OPERATIONS:
        if broker.authorizer.is_allowed(request.connection, operation, ResourceType.GROUP, group_id):
            bits |= 1 << operation
    return bits


def is_offered(broker: Broker) -> bool:
    """Whether groups of the new consumer protocol are let in."""
    return "consumer" in broker.config.group_coordinator_rebalance_protocols
