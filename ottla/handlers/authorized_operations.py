"""The bit field "authorized operations": the operations on a resource that the principal of a connection is permitted (KIP-430)."""

from __future__ import annotations

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.rights import permits_on_cluster
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

NOT_ASKED = -0x80000000

_O = AclOperation
_CONFIGS = (_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
SUPPORTED = {
    ResourceType.TOPIC: (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, *_CONFIGS),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, *_CONFIGS, _O.IDEMPOTENT_WRITE),
}


def authorized_operations(broker: Broker, request: RequestContext, resource_type: ResourceType, name: str) -> int:
    """Returns one bit for each allowed operation. Without an authorizer CLUSTER_ACTION is included although clients may not use it, because
    programs compare the set with Kafka's.
    """
    authorizer = broker.authorizer
    if authorizer.allows_clients_everything(request.connection) or authorizer.is_open(resource_type, name):
        return sum(1 << operation for operation in SUPPORTED[resource_type])
    has = authorizer.has_permission
    return sum(1 << operation for operation in SUPPORTED[resource_type] if has(request.connection, operation, resource_type, name))


def cluster_operations(broker: Broker, request: RequestContext) -> int:
    """Returns the bits for the cluster; 0 for a principal without DESCRIBE on it."""
    if not permits_on_cluster(broker, request, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(broker, request, ResourceType.CLUSTER, CLUSTER_NAME)
