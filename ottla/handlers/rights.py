"""Checks permissions of the request's principal.

With ACLs these functions write a denial to the audit log, except `permits`, `permits_on_cluster`, `may_be_broker` and the filter of topics:
their answer does not refuse the request.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.settings.topics import MIRROR_SOURCE
from ottla.base.types import INTERNAL_TOPICS
from ottla.handlers.context import Broker, RequestContext
from ottla.replication.mirror_rules import refusal_to_write_mirrored
from ottla.security.acl import CLUSTER_NAME, DENIED, AclOperation, ResourceType


def is_allowed(broker: Broker, request: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    return broker.authorizer.is_allowed(request.connection, operation, resource_type, name)


def permits(broker: Broker, request: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
    """Checks a permission without a line in the audit log for a denial. For filters of a list, and for the first of two permissions that
    are alternatives.
    """
    return broker.authorizer.permits(request.connection, operation, resource_type, name)


def is_allowed_on_cluster(broker: Broker, request: RequestContext, operation: AclOperation) -> bool:
    return broker.authorizer.is_allowed(request.connection, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def describable_topics(broker: Broker, request: RequestContext) -> Callable[[str], bool] | None:
    """Returns a filter of topics that the principal may describe, for requests that list all topics; None if no check is needed (no
    authorizer, or a super user).
    """
    if broker.authorizer.allows_clients_everything(request.connection):
        return None
    return lambda topic: permits(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def is_broker(broker: Broker, request: RequestContext) -> bool:
    """Whether the request is treated as a broker's: its principal has CLUSTER_ACTION on the cluster, as super users do."""
    return broker.authorizer.is_allowed(request.connection, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def permits_on_cluster(broker: Broker, request: RequestContext, operation: AclOperation) -> bool:
    return broker.authorizer.permits(request.connection, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def may_be_broker(broker: Broker, request: RequestContext) -> bool:
    """Like `is_broker`, but without a line in the audit log, for a request that clients with another permission may send too."""
    return permits_on_cluster(broker, request, AclOperation.CLUSTER_ACTION)


def may_create(broker: Broker, request: RequestContext, topic: str) -> bool:
    """Whether the principal may create a topic: it has CREATE on the cluster or on the topic."""
    return permits_on_cluster(broker, request, AclOperation.CREATE) or is_allowed(
        broker, request, AclOperation.CREATE, ResourceType.TOPIC, topic
    )


def refusal_to_write(broker: Broker, request: RequestContext, topic: str) -> ApiError | None:
    """Returns the reason to refuse all records that a client sends to a topic; None if the client may write. A client that knows only the
    topic's id must not learn the name from a denial.
    """
    if not broker.authorizer.is_allowed(request.connection, AclOperation.WRITE, ResourceType.TOPIC, topic):
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{request.connection.principal} may not write to the topic")
    if topic in INTERNAL_TOPICS:
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by its coordinator only")
    if is_mirrored(broker, topic):
        return refusal_to_write_mirrored(topic)
    return None


def is_mirrored(broker: Broker, topic: str) -> bool:
    """Whether only a mirror of another cluster writes to the topic."""
    return bool(broker.metadata.configs(CONFIG_TOPIC, topic).get(MIRROR_SOURCE))


def require(broker: Broker, request: RequestContext, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
    """Raises the resource's own AUTHORIZATION_FAILED error if the principal may not do this."""
    if not broker.authorizer.is_allowed(request.connection, operation, resource_type, name):
        raise ApiError(DENIED[resource_type], f"{request.connection.principal} may not {operation.name} {resource_type.name} {name!r}")


def require_on_cluster(broker: Broker, request: RequestContext, operation: AclOperation) -> None:
    require(broker, request, operation, ResourceType.CLUSTER, CLUSTER_NAME)
