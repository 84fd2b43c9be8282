"""The bit field "authorized operations": the operations on a resource that the principal of a connection is permitted (KIP-430)."""

from __future__ import annotations

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import permits_on_cluster
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

NOT_ASKED = -0x80000000

SUPPORTED = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(broker: Broker, request: RequestContext, resource_type: ResourceType, name: str) -> int:
    """Returns one bit for each allowed operation; all bits without an authorizer or for a resource that is open to all. CLUSTER_ACTION is
    included although clients may not use it, because programs compare the set with Kafka's.
    """
    authorizer = broker.authorizer
    if authorizer.allows_clients_everything(request.connection) or authorizer.is_open(resource_type, name):
        return sum(1 << operation for operation in SUPPORTED[resource_type])
    permits = authorizer.permits
    return sum(1 << operation for operation in SUPPORTED[resource_type] if permits(request.connection, operation, resource_type, name))


def cluster_operations(broker: Broker, request: RequestContext) -> int:
    """Returns the bits for the cluster; 0 for a principal without DESCRIBE on it."""
    if not permits_on_cluster(broker, request, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(broker, request, ResourceType.CLUSTER, CLUSTER_NAME)
