"""Why access rules can neither be described nor changed: no right on the cluster, or no authorizer that keeps any."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.requests.context import Broker, RequestContext
from ottla.requests.rights import is_allowed_on_cluster
from ottla.security.acl import AclOperation


def acl_refusal(broker: Broker, request: RequestContext, operation: AclOperation) -> tuple[ErrorCode, str]:
    """Returns the refusal of an ACL request. The right is checked first, as in Kafka, so that others learn no configuration."""
    if not is_allowed_on_cluster(broker, request, operation):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    return ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
