"""Implements `ottla acl`, which lists, adds and removes access rules (ACLs), and parses the options that it shares with `kafka-acls` into
ACL bindings and filters.

A rule allows or denies a principal an operation on topics, groups and other resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.analysis.access import CONSUMER_NEEDS, OPERATIONS, PRODUCER_NEEDS
from ottla.base.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    WILDCARD,
    AclFilter,
    AclOperation,
    Binding,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    java_name,
)
from ottla.base.counted import counted
from ottla.cli.command import YES, Args, UsageError, command, confirm, flag, option
from ottla.cli.render.ottla import Output, Row
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin

RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Resource types by the option that names resources of the type. `--cluster` is absent because it takes no name."""

PATTERN_TYPES = {"any": ANY, "match": MATCH, "literal": int(PatternType.LITERAL), "prefixed": int(PatternType.PREFIXED)}


class Resource(NamedTuple):
    """A resource that the options name. With the pattern types `any` and `match` it can only filter rules; otherwise it can also be the
    pattern of a rule.
    """

    resource_type: ResourceType
    name: str
    pattern_type: int

    def pattern(self) -> Pattern:
        return Pattern(self.resource_type, self.name, PatternType(self.pattern_type))

    def filter(self, rule: Rule | None = None) -> AclFilter:
        """Returns a filter for `rule` on the resource; for all rules of the resource if `rule` is None."""
        where = AclFilter(self.resource_type, self.name, self.pattern_type)
        return where if rule is None else where._replace(**rule._asdict())


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME, int(PatternType.LITERAL))

Wanted = dict[Resource, list[Rule]]
"""Rules by resource. The lists are empty if the options name no principal."""

RESOURCE_OPTIONS = (
    option("--topic", action="append", metavar="TOPIC", help="a topic; '*' means every topic; this and the next options are repeatable"),
    option("--group", action="append", metavar="GROUP", help="a group"),
    flag("--cluster", help="the cluster itself"),
    option("--transactional-id", action="append", metavar="ID", help="a transactional id"),
    option("--delegation-token", action="append", metavar="ID", help="a delegation token"),
    option("--user-principal", action="append", metavar="User:NAME", help="a user that owns delegation tokens"),
    option("--resource-pattern-type", default="literal", metavar="TYPE", help="literal (default), prefixed; in filters also any, match"),
)

RULE_OPTIONS = (
    option("--allow-principal", action="append", metavar="User:NAME", help="who is allowed; User:'*' means everyone; repeatable"),
    option("--deny-principal", action="append", metavar="User:NAME", help="who is denied; this wins over rules that allow"),
    option("--allow-host", action="append", metavar="HOST", help="client address or network (10.0.0.0/8) that is allowed; default: all"),
    option("--deny-host", action="append", metavar="HOST", help="client address or network (10.0.0.0/8) that is denied; default: all"),
    option("--operation", action="append", metavar="OPERATION", help="Read, Write, Create, Describe, ... or All (default)"),
    flag("--producer", help="the operations that a producer needs on the topics and transactional ids"),
    flag("--consumer", help="the operations that a consumer needs on the topics and groups"),
    flag("--idempotent", help="with --producer: IdempotentWrite on the cluster as well"),
)


def check_shortcuts(args: Args) -> None:
    """Raises `UsageError` if another option contradicts --producer or --consumer, or if an option is missing that --producer, --consumer or
    --idempotent needs."""
    for role in ("producer", "consumer"):
        for name in ("operation", "deny_principal", "deny_host"):
            if getattr(args, role) and getattr(args, name):
                raise UsageError(f'Option "[{role}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    if args.producer and not args.topic:
        raise UsageError("With --producer you must specify a --topic")
    if args.idempotent and not args.producer:
        raise UsageError("The --idempotent option is only available if --producer is set")
    is_more = not args.producer and (args.cluster or args.transactional_id)
    if args.consumer and (not args.topic or not args.group or is_more):
        why = "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option should be specified."
        raise UsageError(why)


def resources_of(args: Args) -> list[Resource]:
    """Returns the resources that the options name. Raises `UsageError` for an unknown pattern type."""
    pattern_type = PATTERN_TYPES.get(args.resource_pattern_type.lower())
    if pattern_type is None:
        raise UsageError(f"--resource-pattern-type is one of {', '.join(PATTERN_TYPES)}")
    found = [Resource(kind, name.strip(), pattern_type) for option, kind in RESOURCES.items() for name in getattr(args, option) or ()]
    if pattern_type == PatternType.LITERAL and (args.cluster or getattr(args, "idempotent", False)):
        found.append(CLUSTER)
    return list(dict.fromkeys(found))


def wanted_of(args: Args) -> Wanted:
    """Returns the rules that the options name, by resource. Raises `UsageError`, also if no resource is named or an operation does not
    apply to its resource."""
    check_shortcuts(args)
    resources = resources_of(args)
    if not resources:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or --delegation-token "
            "<Delegation Token ID>"
        )
    wanted: Wanted = {}
    if not args.producer and not args.consumer:
        operations = [operation_of(word) for word in args.operation or ["All"]]
        wanted = {resource: rules_of(args, operations) for resource in resources}
    for is_wanted, needs in ((args.producer, PRODUCER_NEEDS), (args.consumer, CONSUMER_NEEDS)):
        for kind, needed in needs.items() if is_wanted else ():
            _add_rules(wanted, resources, kind, rules_of(args, needed))
    if args.producer and args.idempotent:
        _add_rules(wanted, [CLUSTER], ResourceType.CLUSTER, rules_of(args, (AclOperation.IDEMPOTENT_WRITE,)))
    for resource, rules in wanted.items():
        _check_operations(resource, rules)
    return wanted


def bindings_of(args: Args) -> list[Binding]:
    """Returns the bindings to add. Raises `UsageError` as `wanted_of` does, if no principal is named, and for the pattern types any and
    match: only filters have these."""
    if args.resource_pattern_type.lower() in ("any", "match"):
        kind = args.resource_pattern_type.upper()
        raise UsageError(f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls.")
    wanted = wanted_of(args)
    if not all(wanted.values()):
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    return [Binding(resource.pattern(), rule) for resource, rules in wanted.items() for rule in rules]


def rules_of(args: Args, operations: Sequence[AclOperation]) -> list[Rule]:
    """Returns a rule for each combination of principal, host and operation. The default host is `*`."""
    sides = ((Permission.ALLOW, args.allow_principal, args.allow_host), (Permission.DENY, args.deny_principal, args.deny_host))
    return [
        Rule(principal_of(principal), host.strip(), operation, permission)
        for permission, principals, hosts in sides
        for principal in principals or ()
        for host in hosts or (WILDCARD,)
        for operation in operations
    ]


def principal_of(text: str) -> str:
    """Returns the principal without surrounding blanks. Raises `UsageError` unless it has the form `User:alice`."""
    principal = text.strip()
    kind, colon, name = principal.partition(":")
    if not kind or not colon or not name:
        expected = "expected a string in format principalType:principalName"
        raise UsageError(f"{expected} but got {principal}; write User:{name or kind or 'NAME'}")
    return principal


def operation_of(text: str) -> AclOperation:
    """Returns the operation of a name: `DescribeConfigs`, `DESCRIBE_CONFIGS` or `describe-configs`. Raises `UsageError` for other names."""
    wanted = text.strip().replace("_", "").replace("-", "").lower()
    for operation in AclOperation:
        if operation.name.replace("_", "").lower() == wanted:
            return operation
    raise UsageError(f"unknown operation {text!r}; there are {', '.join(map(java_name, AclOperation))}")


def _add_rules(wanted: Wanted, resources: Iterable[Resource], kind: ResourceType, rules: list[Rule]) -> None:
    for resource in resources:
        if resource.resource_type is kind:
            wanted[resource] = list(dict.fromkeys([*wanted.get(resource, ()), *rules]))


def _check_operations(resource: Resource, rules: list[Rule]) -> None:
    known = (*OPERATIONS[resource.resource_type], AclOperation.ALL)
    if any(rule.operation not in known for rule in rules):
        names = ", ".join(map(java_name, known))
        raise UsageError(f"ResourceType {resource.resource_type.name} only supports operations {names}")


class RuleRow(Row):
    """An access rule and the resource pattern that it applies to."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


def _rows(bindings: Sequence[Binding]) -> list[RuleRow]:
    return [
        RuleRow(
            java_name(pattern.resource_type),
            pattern.name,
            java_name(pattern.pattern_type),
            rule.principal,
            rule.host,
            java_name(rule.operation),
            java_name(rule.permission),
        )
        for pattern, rule in bindings
    ]


@command(
    "acl list",
    "List access rules, of all resources or of some.",
    *RESOURCE_OPTIONS,
    option("--principal", action="append", metavar="User:NAME", help="only rules about these; repeatable"),
    may_watch=True,
    needs="DESCRIBE CLUSTER",
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    principals = [principal_of(text) for text in args.principal or ()]
    filters = [resource.filter() for resource in resources_of(args)] or [AclFilter()]
    found = sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each)))
    shown = [binding for binding in found if not principals or binding.rule.principal in principals]
    output.rows("acls", RuleRow, _rows(shown))


OPTIONS = (*RESOURCE_OPTIONS, *RULE_OPTIONS)


@command("acl add", "Allow or deny operations on resources to principals.", *OPTIONS, needs="ALTER CLUSTER")
def _add(args: Args, cluster: Cluster, output: Output) -> None:
    bindings = bindings_of(args)
    acl_admin.create_acls(cluster, bindings)
    output.done(f"Added {_count(len(bindings))}.", {"added": [row.as_json() for row in _rows(bindings)]})


@command("acl remove", "Remove access rules.", *OPTIONS, YES, needs="ALTER CLUSTER")
def _remove(args: Args, cluster: Cluster, output: Output) -> None:
    filters = [
        resource.filter(rule)
        for resource, rules in wanted_of(args).items()
        for rule in (rules or [None])  # type: ignore[list-item]
    ]
    unwanted = sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each)))
    for row in _rows(unwanted):
        output.note(" ".join(str(value) for value in vars(row).values()))
    confirm(args, f"Remove {_count(len(unwanted))}?")
    removed = acl_admin.delete_acls(cluster, filters)
    output.done(f"Removed {_count(len(removed))}.", {"removed": [row.as_json() for row in _rows(removed)]})


def _count(number: int) -> str:
    return counted(number, "access rule")
