"""Access control as handlers use it: operations, resource types, and the error code for a denied resource of each type."""

from __future__ import annotations

from ottla.base.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.base.errors import ErrorCode

__all__ = ["CLUSTER_NAME", "DENIED", "AclOperation", "ResourceType"]

DENIED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Error code of a request that may not use a resource. Permissions on users concern only their delegation tokens."""
