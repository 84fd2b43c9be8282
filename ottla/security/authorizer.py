"""The one point of authorization: `Authorizer.is_allowed`, which handlers ask with the requester, an operation and a resource."""

from __future__ import annotations

from typing import Protocol

from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester


class Authorizer(Protocol):
    """Decides what the principal of a connection may do."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether a request that needs this may go on; a refusal is written to the audit log."""

    def permits(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """The same decision where no request fails by it: what of a list may be shown, the first of two rights that will do."""

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of this type, existing or not, on which this is allowed."""

    def allows_clients_everything(self, requester: Requester) -> bool:
        """Whether every operation but CLUSTER_ACTION is allowed on every resource, so that a request need not ask for each of them."""

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        """Whether anybody may do everything with this resource, by its rules or their absence; so Kafka, where that includes
        CLUSTER_ACTION."""


class AllowClients:
    """The rule without access control: clients may do everything but speak as a broker."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return operation is not AclOperation.CLUSTER_ACTION or requester.is_inter_broker

    permits = is_allowed

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.is_allowed(requester, operation, resource_type, "")

    def allows_clients_everything(self, requester: Requester) -> bool:
        return True

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return True
