"""What handlers need of access control: operations, resource types, and the error code of each denied resource type."""

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
"""The error of a request that may not use a resource. Rights on users are about their delegation tokens only."""
