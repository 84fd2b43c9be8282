"""The single point of authorization: handlers call `Authorizer.is_allowed` with the requester, an operation and a resource."""

from __future__ import annotations

from typing import Protocol

from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester


class Authorizer(Protocol):
    """Decides what the principal of a connection may do."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed. A refusal is written to the audit log."""

    def permits(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed, without a line in the audit log. For filtering a list, or for the first of two alternative
        permissions."""

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of this type; the resource need not exist."""

    def allows_clients_everything(self, requester: Requester) -> bool:
        """Whether every operation except CLUSTER_ACTION is allowed on every resource, so that a request needs no single checks."""

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        """Whether the resource is open to every principal, because it has no ACLs. Only for lists of authorized operations, which then
        include CLUSTER_ACTION, as in Kafka; `is_allowed` refuses it even so.
        """


class AllowClients:
    """The authorizer without access control: clients may do everything except CLUSTER_ACTION."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return operation is not AclOperation.CLUSTER_ACTION or requester.is_inter_broker

    permits = is_allowed

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.is_allowed(requester, operation, resource_type, "")

    def allows_clients_everything(self, requester: Requester) -> bool:
        return True

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return True
