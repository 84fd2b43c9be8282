"""Authorizers for tests, whose decisions are made by one function or by a list of denials."""

from __future__ import annotations

from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester

Question = tuple[AclOperation, ResourceType, str]
ANY_NAME = "*"


class RuleAuthorizer:
    """Calls `is_allowed` of a derived class for every decision. There are no super users, and no resource is open to all."""

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        raise AssertionError("a derived class decides")

    def permits(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self.is_allowed(requester, operation, resource_type, name)

    has_permission = permits

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.is_allowed(requester, operation, resource_type, ANY_NAME)

    def allows_clients_everything(self, requester: Requester) -> bool:
        return False

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return False


class StrictAuthorizer(RuleAuthorizer):
    """Denies each request that has a part in `denied`: an operation, a resource type, a name, or an operation on one of these."""

    def __init__(self, *denied: object) -> None:
        self.denied = set(denied)
        self.asked: list[Question] = []

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self.asked.append((operation, resource_type, name))
        parts = (operation, resource_type, name, (operation, resource_type), (operation, name))
        # Types are compared too, because an operation and a resource type with the same number are equal.
        return not any(type(part) is type(denied) and part == denied for part in parts for denied in self.denied)
