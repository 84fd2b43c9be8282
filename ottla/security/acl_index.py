"""An index of all ACLs. A decision about one resource looks only at the ACLs of its name and of the prefixes of its name.

ACLs are indexed by resource type, principal and pattern. For the principal and for `User:*`, a decision combines the ACLs of the literal
name, of the literal `*` and of every prefix of the name. The prefixed patterns of one principal's ACLs are sorted. Each has a parent: the
longest of the other patterns that it begins with. The last prefix at or before a name in sort order is found by bisection. This prefix and
its ancestors include every prefix of the name.

The permissions of a host (`acl_hosts`) on a pattern are one integer: a bit for each allowed operation and, shifted by `DENIED_SHIFT`, a bit
for each denied operation. ALL sets the bits of all operations. Allowed operations also set the bits of the operations that they imply
(READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS). A denied operation implies no other operation; only
ALL denies more than itself. Principals and names are compared by code points, so two Unicode forms of one name are two names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from ottla.base.acls import (
    ANY,
    ANY_PRINCIPAL,
    IMPLIED_BY,
    MATCH,
    WILDCARD,
    AclFilter,
    AclOperation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from ottla.security.acl_hosts import HostNames

T = TypeVar("T")
DecisionsByHost = dict[str, int]
"""The bits of allowed and denied operations, by the host of the ACLs in its normal form."""
Hosts = tuple[str, ...]
"""The host names under which ACLs are looked up for the requester's address (`HostNames.of`)."""

DENIED_SHIFT = 32


def _allowed_bits(operation: AclOperation) -> int:
    if operation is AclOperation.ALL:
        return sum(1 << each for each in AclOperation)
    return 1 << operation | sum(1 << implied for implied, by in IMPLIED_BY.items() if operation in by)


_ALLOWED = {operation: _allowed_bits(operation) for operation in AclOperation}
_DENIED = {operation: 1 << operation + DENIED_SHIFT for operation in AclOperation}
_DENIED[AclOperation.ALL] = _ALLOWED[AclOperation.ALL] << DENIED_SHIFT


def bits_of(rule: Rule) -> int:
    return (_ALLOWED if rule.permission is Permission.ALLOW else _DENIED)[rule.operation]


class _Prefixes:
    """Prefixes of names, with the permissions of hosts for each."""

    __slots__ = ("_hosts", "_is_stale", "_parents", "_sorted")

    def __init__(self) -> None:
        self._hosts: dict[str, DecisionsByHost] = {}
        self._sorted: list[str] = []
        self._parents: dict[str, str | None] = {}
        self._is_stale = False

    def __len__(self) -> int:
        return len(self._hosts)

    def put(self, prefix: str, hosts: DecisionsByHost | None) -> None:
        if hosts is None:
            self._is_stale |= self._hosts.pop(prefix, None) is not None
        else:
            self._is_stale |= prefix not in self._hosts
            self._hosts[prefix] = hosts

    def items(self) -> Iterable[tuple[str, DecisionsByHost]]:
        return self._hosts.items()

    def masks(self, name: str, hosts: Hosts) -> int:
        """Returns the permissions of the hosts from all prefixes of this name."""
        if self._is_stale:
            self._arrange()
        at = bisect_right(self._sorted, name)
        prefix = self._sorted[at - 1] if at else None
        masks = 0
        while prefix is not None:
            if name.startswith(prefix):
                masks |= masks_in(self._hosts[prefix], hosts)
            prefix = self._parents[prefix]
        return masks

    def _arrange(self) -> None:
        self._sorted = sorted(self._hosts)
        self._parents = {}
        ancestors: list[str] = []
        for prefix in self._sorted:
            while ancestors and not prefix.startswith(ancestors[-1]):
                ancestors.pop()
            self._parents[prefix] = ancestors[-1] if ancestors else None
            ancestors.append(prefix)
        self._is_stale = False


class _Rules:
    """The ACLs of one principal for one resource type."""

    __slots__ = ("literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, DecisionsByHost] = {}
        self.prefixed = _Prefixes()

    def put(self, pattern: Pattern, hosts: DecisionsByHost | None) -> None:
        if pattern.pattern_type is PatternType.PREFIXED:
            self.prefixed.put(pattern.name, hosts)
        elif hosts is None:
            self.literal.pop(pattern.name, None)
        else:
            self.literal[pattern.name] = hosts

    def masks(self, name: str, hosts: Hosts) -> int:
        masks = 0
        literal = self.literal
        for decisions in (literal.get(name), literal.get(WILDCARD)):
            if decisions is not None:
                masks |= masks_in(decisions, hosts)
        return masks | self.prefixed.masks(name, hosts) if self.prefixed else masks


class AclIndex:
    """All ACLs by pattern, and the index for decisions."""

    def __init__(self) -> None:
        self._rules: dict[Pattern, frozenset[Rule]] = {}
        self._of: dict[tuple[int, str], _Rules] = {}  # by resource type and principal
        self._of_all: dict[int, _Rules] = {}  # by resource type: the patterns with an ACL of any principal
        self._hosts = HostNames()

    def __len__(self) -> int:
        """Returns the number of patterns with ACLs."""
        return len(self._rules)

    def matching(self, wanted: AclFilter) -> Iterator[tuple[Pattern, frozenset[Rule]]]:
        """Yields the patterns that match the filter, with all their ACLs; the caller still has to match the single ACLs. A filter with a
        resource's name or a principal visits only patterns of this name or principal, because a request may contain thousands of
        filters."""
        for pattern in self._candidates(wanted):
            rules = self._rules.get(pattern)
            if rules is not None and wanted.matches_pattern(pattern):
                yield pattern, rules

    def _candidates(self, wanted: AclFilter) -> Iterable[Pattern]:
        """Returns candidate patterns: a superset of the matching ones, each once."""
        name, kinds = wanted.name, [kind for kind in ResourceType if wanted.resource_type in (ANY, kind)]
        if name is not None and wanted.pattern_type != MATCH:
            return (Pattern(kind, name, pattern_type) for kind in kinds for pattern_type in PatternType)
        if name is not None and len(name) < len(self._rules):
            names = dict.fromkeys([(name, PatternType.LITERAL), (WILDCARD, PatternType.LITERAL)])
            names.update(dict.fromkeys((name[:end], PatternType.PREFIXED) for end in range(len(name) + 1)))
            return (Pattern(kind, *each) for kind in kinds for each in names)
        if wanted.principal is not None:
            return self._patterns_of(wanted.principal, kinds)
        return self._rules

    def _patterns_of(self, principal: str, kinds: Iterable[ResourceType]) -> Iterator[Pattern]:
        for kind in kinds:
            rules = self._of.get((int(kind), principal))
            if rules is not None:
                yield from (Pattern(kind, name) for name in rules.literal)
                yield from (Pattern(kind, name, PatternType.PREFIXED) for name, _ in rules.prefixed.items())

    def put(self, pattern: Pattern, rules: Iterable[Rule]) -> None:
        """Replaces the ACLs of the pattern. An empty `rules` removes the pattern."""
        new = frozenset(rules)
        kind = int(pattern.resource_type)
        gone = dict.fromkeys(rule.principal for rule in sorted(self._rules.get(pattern, ())))
        by_principal: dict[str, DecisionsByHost] = {}
        for rule in sorted(new):
            decisions = by_principal.setdefault(rule.principal, {})
            host = self._hosts.add(rule.host)
            decisions[host] = decisions.get(host, 0) | bits_of(rule)
        for principal in {**gone, **dict.fromkeys(by_principal)}:
            _put(self._of, (kind, principal), pattern, by_principal.get(principal))
        _put(self._of_all, kind, pattern, {WILDCARD: 1} if new else None)
        if new:
            self._rules[pattern] = new
        else:
            self._rules.pop(pattern, None)

    def replace(self, rules: Mapping[Pattern, Iterable[Rule]]) -> None:
        self._rules, self._of, self._of_all = {}, {}, {}
        for pattern, of_pattern in rules.items():
            self.put(pattern, of_pattern)

    def masks(self, principal: str, address: str, resource_type: ResourceType, name: str) -> int:
        """Returns the permissions of a principal at an address on a resource, from all ACLs."""
        kind, hosts = int(resource_type), self._hosts.of(address)
        masks = 0
        own, of_any = self._of.get((kind, principal)), self._of.get((kind, ANY_PRINCIPAL))
        if own is not None:
            masks = own.masks(name, hosts)
        if of_any is not None:
            masks |= of_any.masks(name, hosts)
        return masks

    def has_rules(self, resource_type: ResourceType, name: str) -> bool:
        rules = self._of_all.get(int(resource_type))
        return rules is not None and rules.masks(name, (WILDCARD,)) != 0

    def _denies_all(self, principal: str, hosts: Hosts, operation: AclOperation, resource_type: ResourceType) -> bool:
        masks = 0
        for who in (principal, ANY_PRINCIPAL):
            rules = self._of.get((int(resource_type), who))
            masks |= 0 if rules is None else masks_in(rules.literal.get(WILDCARD, {}), hosts)
        return bool(masks >> DENIED_SHIFT & 1 << operation)

    def allows_any(self, principal: str, address: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed and not denied on some resource of the type; the resource need not exist."""
        kind, bit, hosts = int(resource_type), 1 << operation, self._hosts.of(address)
        if self._denies_all(principal, hosts, operation, resource_type):
            return False
        of_both = [rules for who in (principal, ANY_PRINCIPAL) if (rules := self._of.get((kind, who))) is not None]
        for rules in of_both:
            if any(
                name == WILDCARD or not _denied_at(of_both, name, hosts) & bit
                for name, decisions in rules.literal.items()
                if masks_in(decisions, hosts) & bit
            ) or any(
                not _denied_within(of_both, prefix, hosts) & bit
                for prefix, decisions in rules.prefixed.items()
                if masks_in(decisions, hosts) & bit
            ):
                return True
        return False


def masks_in(decisions: DecisionsByHost, hosts: Hosts) -> int:
    masks = 0
    for host in hosts:
        masks |= decisions.get(host, 0)
    return masks


def _denied_within(of_both: list[_Rules], prefix: str, hosts: Hosts) -> int:
    """Returns the operations that are denied on all names with the prefix."""
    masks = 0
    for rules in of_both:
        masks |= rules.prefixed.masks(prefix, hosts)
    return masks >> DENIED_SHIFT


def _denied_at(of_both: list[_Rules], name: str, hosts: Hosts) -> int:
    """Returns the operations that are denied on one name."""
    masks = 0
    for rules in of_both:
        masks |= rules.masks(name, hosts)
    return masks >> DENIED_SHIFT


def _put(index: dict[T, _Rules], key: T, pattern: Pattern, hosts: DecisionsByHost | None) -> None:
    """Changes one entry of an index; removes it when it has no ACLs left."""
    rules = index.get(key)
    if rules is None:
        if hosts is None:
            return
        rules = index[key] = _Rules()
    rules.put(pattern, hosts)
    if not rules.literal and not rules.prefixed:
        del index[key]
