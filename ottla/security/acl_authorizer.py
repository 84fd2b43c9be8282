"""The authorizer based on ACLs, with Kafka's semantics.

A denial takes precedence over a permission. Operations that no ACL allows are denied, except on a resource without any ACL if
`allow.everyone.if.no.acl.found` is set; CLUSTER_ACTION needs an ACL even there. Super users and authenticated brokers may do everything.
All other principals are denied everything until the ACLs have been read from the metadata store.

Decisions are cached. A change of any ACL clears the cache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from ottla.base.acls import WILDCARD, AclFilter, AclOperation, Binding, Pattern, ResourceType, Rule
from ottla.base.bounded_cache import BoundedCache
from ottla.base.loop.turns import pieces_of
from ottla.security.acl_index import DENIED_SHIFT, AclIndex
from ottla.security.audit import AuditLog
from ottla.security.principal import Requester

DECISIONS_BYTES_MAX = 24 << 20
"""Memory for cached decisions. Their number would bound nothing, because clients choose the names. 24 MiB: about 45,000 decisions about
names of 40 letters."""

UNNAMED = "hardcode"
"""Name of a resource without ACLs. Kafka uses it, too, to test whether such resources are open."""

Question = tuple[str, str, int, str]
"""Key of a cached decision: the principal, the host, a number (operation and resource type), and the resource's name. For "any resource"
the bits of the number are inverted and the name is empty."""


class AclAuthorizer:
    """Decides by ACLs; `replace` and `put` update them from the metadata store."""

    def __init__(self, audit: AuditLog, *, super_users: Iterable[str] = (), allows_without_rules: bool = False) -> None:
        self._audit = audit
        self._super_users = dict.fromkeys(super_users)
        self._allows_without_rules = allows_without_rules
        self._index = AclIndex()
        self._is_loaded = False
        self._decisions: BoundedCache[Question, bool] = BoundedCache(DECISIONS_BYTES_MAX)

    # `Authorizer`

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        is_allowed = self.has_permission(requester, operation, resource_type, name)
        if not is_allowed:
            self._audit.refused(requester, operation, resource_type, name)
        elif self._audit.logs_granted:
            self._audit.granted(requester, operation, resource_type, name)
        return is_allowed

    def permits(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        is_allowed = self.has_permission(requester, operation, resource_type, name)
        if is_allowed and self._audit.logs_granted:
            self._audit.granted(requester, operation, resource_type, name)
        return is_allowed

    def has_permission(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        decision = self._decisions.get((requester.principal, requester.host, operation << 4 | resource_type, name))
        if decision is None:
            decision = self._may_do_everything(requester) or self._decide(requester, operation, resource_type, name)
        return decision or requester.is_inter_broker

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        decision = self._decisions.get((requester.principal, requester.host, ~(operation << 4 | resource_type), ""))
        if decision is None:
            decision = self._may_do_everything(requester) or self._decide_on_any(requester, operation, resource_type)
        if not (decision or requester.is_inter_broker):
            self._audit.refused(requester, operation, resource_type, WILDCARD)
            return False
        if self._audit.logs_granted:
            self._audit.granted(requester, operation, resource_type, WILDCARD)
        return True

    def allows_clients_everything(self, requester: Requester) -> bool:
        return not self._audit.logs_granted and self._may_do_everything(requester)

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return self._is_loaded and self._allows_without_rules and not self._index.has_rules(resource_type, name)

    # The rules

    def replace(self, rules: Mapping[Pattern, Iterable[Rule]]) -> None:
        self._index.replace(rules)
        self._is_loaded = True
        self._decisions.clear()

    def put(self, pattern: Pattern, rules: Iterable[Rule]) -> None:
        """Replaces the ACLs of one pattern."""
        self._index.put(pattern, rules)
        self._decisions.clear()

    def bindings(self, wanted: AclFilter) -> Generator[None, None, list[Binding]]:
        """Returns the ACLs that match the filter, ordered by pattern. Yields between groups of patterns, so that other work can run.
        Selects the patterns at the first step, so later changes do not matter.
        """
        found: list[Binding] = []
        for piece in pieces_of(sorted(self._index.matching(wanted), key=lambda item: item[0])):
            found += [Binding(pattern, rule) for pattern, rules in piece for rule in wanted.matching_rules(rules)]
            yield
        return found

    # Deciding

    def _may_do_everything(self, requester: Requester) -> bool:
        return requester.is_inter_broker or requester.principal in self._super_users

    def _decide(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        masks = self._index.masks(requester.principal, requester.host, resource_type, name)
        if not self._is_loaded or masks >> DENIED_SHIFT & 1 << operation:
            decision = False
        elif masks & 1 << operation:
            decision = True
        else:
            decision = operation is not AclOperation.CLUSTER_ACTION and self.is_open(resource_type, name)
        return self._decisions.remember((requester.principal, requester.host, operation << 4 | resource_type, name), decision)

    def _decide_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        principal, host = requester.principal, requester.host
        decision = self._is_loaded and (
            self._index.allows_any(principal, host, operation, resource_type)
            or self._decide(requester, operation, resource_type, UNNAMED)
        )
        return self._decisions.remember((principal, host, ~(operation << 4 | resource_type), ""), decision)
