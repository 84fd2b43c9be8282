"""The single point of authorization: handlers call `Authorizer.is_allowed` with the requester, an operation and a resource."""

from __future__ import annotations

from typing import Protocol

from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester


class Authorizer(Protocol):
    """Decides what the principal of a connection may do."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed. With ACLs a refusal is written to the audit log, with `ottla.audit.granted` also a
        grant."""

    def permits(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Like `is_allowed`, but a refusal is not written to the audit log. Used to filter a list, and for the first of two alternative
        permissions."""

    def has_permission(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed, without a line in the audit log. Used to list permissions."""

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of this type; the resource need not exist. The audit log has the same lines
        as for `is_allowed`, with the resource `*`."""

    def allows_clients_everything(self, requester: Requester) -> bool:
        """Whether a request needs no single checks, because every operation except CLUSTER_ACTION is allowed on every resource and no
        permission has to be logged. May be False although all are allowed."""

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        """Whether the resource is open to every principal, because it has no ACLs. Handlers use it only for lists of authorized operations.
        These lists then include CLUSTER_ACTION, as in Kafka, although `is_allowed` refuses it.
        """


class AllowClients:
    """The authorizer without access control: clients may do everything except CLUSTER_ACTION."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return operation is not AclOperation.CLUSTER_ACTION or requester.is_inter_broker

    permits = is_allowed
    has_permission = is_allowed

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.is_allowed(requester, operation, resource_type, "")

    def allows_clients_everything(self, requester: Requester) -> bool:
        return True

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return True
