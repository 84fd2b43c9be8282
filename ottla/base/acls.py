"""ACLs as values: patterns of resources, and rules that allow or deny a principal an operation. Requests, the authorizer and the metadata
store share them.

A rule belongs to a pattern: one resource by its literal name, every resource whose name begins with a prefix, or, by the literal name `*`,
every resource of the type. Enumerations have Kafka's numbers. `java_name` returns the names that Kafka's tools and ZooKeeper nodes use.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""The only resource name of type CLUSTER."""

WILDCARD = "*"
"""As a literal name: every resource of the type; as a host: every host."""

ANY_PRINCIPAL = "User:*"
ANY, MATCH = 1, 2
"""Values in filters. `ANY` matches every value. `MATCH` as the pattern type matches every pattern that applies to a resource with the
filter's name."""


class ResourceType(IntEnum):
    """Kafka's resource types of access control."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    """Kafka's operations of access control; the number is the bit in an "authorized operations" field."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Implied operations: a principal that is allowed one of the operations on the right is also allowed the operation on the left."""


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


def java_name(value: IntEnum) -> str:
    """Returns the name in Java's spelling: `TransactionalId`, `DescribeConfigs`, `Allow`."""
    return "".join(word.capitalize() for word in value.name.split("_"))


class Pattern(NamedTuple):
    """The resources that a rule concerns."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Rule(NamedTuple):
    """A principal that is allowed or denied an operation from a host."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


class Binding(NamedTuple):
    """A rule and its pattern: one ACL."""

    pattern: Pattern
    rule: Rule


class AclFilter(NamedTuple):
    """A filter of ACLs. The number `ANY` and the text None match every value. The pattern type may be `MATCH`."""

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD

    def matching_rules(self, rules: frozenset[Rule]) -> list[Rule]:
        """Returns the rules that the filter matches, sorted. A filter that names one exact rule costs one look-up in the set, because a
        request may contain thousands of filters."""
        if self.principal is None or self.host is None or ANY in (self.operation, self.permission):
            return sorted(rule for rule in rules if self.takes(rule))
        rule = Rule(self.principal, self.host, AclOperation(self.operation), Permission(self.permission))
        return [rule] if rule in rules else []

    def takes(self, rule: Rule) -> bool:
        return (
            self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ANY, rule.operation)
            and self.permission in (ANY, rule.permission)
        )
