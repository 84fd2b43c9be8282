"""`kafka-acls`: the options, lines and messages of Kafka's AclCommand."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ottla.base.acls import AclFilter, Binding, Pattern, Rule
from ottla.base.errors import ApiError
from ottla.cli.access.acl import (
    PATTERN_TYPES,
    RESOURCE_OPTIONS,
    RULE_OPTIONS,
    Resource,
    bindings_of,
    check_shortcuts,
    principal_of,
    resources_of,
    wanted_of,
)
from ottla.cli.command import Args, UsageError, command, flag, hidden, option
from ottla.cli.kafka_tools.usage import action_of, java_error, refuse_options
from ottla.cli.output import write
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin

ACTIONS = ("list", "add", "remove")
ONLY_TO_CHANGE = ("producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal")
"""Options that `--list` refuses."""

OURS = "access rules: "
"""Prefix that our client adds to the broker's message. It is removed before the message is printed."""

_NAMES = {number: name.upper() for name, number in PATTERN_TYPES.items()}


@command(
    "kafka-acls",
    "Access rules, as kafka-acls has them.",
    *(flag(f"--{action}", help=f"{action} access rules") for action in ACTIONS),
    *RESOURCE_OPTIONS,
    *RULE_OPTIONS,
    option("--principal", action="append", metavar="User:NAME", help="with --list: only rules about these"),
    hidden("--bootstrap-controller", dest="bootstrap", metavar="HOST:PORT"),
    flag("--force", help="do not ask"),
    has_output=False,
)
def _run(args: Args, cluster: Cluster) -> int:
    action = action_of(args, ACTIONS)
    if action == "list":
        refuse_options(args, action, ONLY_TO_CHANGE)
    elif args.principal:
        raise UsageError("The --principal option is only available if --list is set")
    check_shortcuts(args)
    do = {"list": _list, "add": _add, "remove": _remove}[action]
    try:
        do(cluster, args)
    except ApiError as error:
        write(f"Error while executing ACL command: {java_error(error, error.message.removeprefix(OURS))}\n")
        return 1
    return 0


def _list(cluster: Cluster, args: Args) -> None:
    principals = [principal_of(text) for text in args.principal or ()]
    filters = [resource.filter() for resource in resources_of(args)] or [AclFilter()]
    found: dict[Pattern, list[Rule]] = {}
    for binding in sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each))):
        found.setdefault(binding.pattern, []).append(binding.rule)
    if not principals:
        _show(found)
    for principal in principals:
        write(f"ACLs for principal `{principal}`\n")
        _show({pattern: mine for pattern, rules in found.items() if (mine := [rule for rule in rules if rule.principal == principal])})


def _show(found: dict[Pattern, list[Rule]]) -> None:
    for pattern, rules in found.items():
        write(f"Current ACLs for resource `{_pattern(pattern)}`:\n{_lines(rules)}\n\n")


def _add(cluster: Cluster, args: Args) -> None:
    by_pattern: dict[Pattern, list[Rule]] = {}
    for pattern, rule in bindings_of(args):
        by_pattern.setdefault(pattern, []).append(rule)
    for pattern, rules in by_pattern.items():
        resource = Resource(pattern.resource_type, pattern.name, pattern.pattern_type)
        known = dict.fromkeys(acl_admin.describe_acls(cluster, resource.filter()))
        new = []
        for rule in rules:
            binding = Binding(pattern, rule)
            if binding in known:
                write(f"Acl (pattern={_pattern(pattern)}, entry={_entry(rule)}) already exists.\n")
            else:
                new.append(binding)
        if new:
            write(f"Adding ACLs for resource `{_pattern(pattern)}`: \n {_lines(binding.rule for binding in new)}\n\n")
            acl_admin.create_acls(cluster, new)


def _remove(cluster: Cluster, args: Args) -> None:
    for resource, rules in wanted_of(args).items():
        pattern_type = _NAMES[resource.pattern_type]
        shown = f"ResourcePattern(resourceType={resource.resource_type.name}, name={resource.name}, patternType={pattern_type})"
        question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
        if rules:
            question = f"Are you sure you want to remove ACLs: \n {_lines(rules)}\n from resource filter `{shown}`? (y/n)"
        if _is_confirmed(args, question):
            acl_admin.delete_acls(cluster, [resource.filter(rule) for rule in rules] or [resource.filter()])


def _is_confirmed(args: Args, question: str) -> bool:
    if args.force:
        return True
    write(f"{question}\n")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() == "y"


def _pattern(pattern: Pattern) -> str:
    kind, pattern_type = pattern.resource_type.name, pattern.pattern_type.name
    return f"ResourcePattern(resourceType={kind}, name={pattern.name}, patternType={pattern_type})"


def _entry(rule: Rule) -> str:
    return f"(principal={rule.principal}, host={rule.host}, operation={rule.operation.name}, permissionType={rule.permission.name})"


def _lines(rules: Iterable[Rule]) -> str:
    return "\n".join(f"\t{_entry(rule)}" for rule in rules)
