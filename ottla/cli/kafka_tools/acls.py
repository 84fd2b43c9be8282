"""`kafka-acls`: the options, lines and messages of Kafka's AclCommand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from ottla.base.acls import AclFilter, Binding, Pattern, Rule
from ottla.base.errors import ApiError
from ottla.cli.access.acl_options import (
    PATTERN_TYPES,
    Resource,
    add_resource_options,
    add_rule_options,
    bindings_of,
    check_shortcuts,
    principal_of,
    resources_of,
    wanted_of,
)
from ottla.cli.command import Command, UsageError
from ottla.cli.kafka_tools.arguments import action_of
from ottla.cli.kafka_tools.java_errors import java_error
from ottla.cli.options import connect
from ottla.cli.output import write
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin

ACTIONS = ("list", "add", "remove")
ONLY_TO_CHANGE = ("producer", "consumer", "allow_host", "allow_principal", "deny_host", "deny_principal")
"""Options that --list does not take."""

OURS = "access rules: "
"""A prefix that our client adds to the broker's message."""

_NAMES = {number: name.upper() for name, number in PATTERN_TYPES.items()}


def _arguments(parser: argparse.ArgumentParser) -> None:
    for action in ACTIONS:
        parser.add_argument(f"--{action}", action="store_true", help=f"{action} access rules")
    add_resource_options(parser)
    add_rule_options(parser)
    parser.add_argument("--principal", action="append", metavar="User:NAME", help="with --list: only rules about these")
    parser.add_argument("--bootstrap-controller", dest="bootstrap", metavar="HOST:PORT", help=argparse.SUPPRESS)
    parser.add_argument("--force", action="store_true", help="do not ask")


def _run(args: argparse.Namespace) -> int:
    action = action_of(args, ACTIONS)
    if action == "list":
        for name in ONLY_TO_CHANGE:
            if getattr(args, name):
                raise UsageError(f'Option "[list]" can\'t be used with option "[{name.replace("_", "-")}]"')
    elif args.principal:
        raise UsageError("The --principal option is only available if --list is set")
    check_shortcuts(args)
    do = {"list": _list, "add": _add, "remove": _remove}[action]
    with connect(args) as cluster:
        try:
            do(cluster, args)
        except ApiError as error:
            write(f"Error while executing ACL command: {java_error(error, error.message.removeprefix(OURS))}\n")
            return 1
    return 0


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
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


def _add(cluster: Cluster, args: argparse.Namespace) -> None:
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


def _remove(cluster: Cluster, args: argparse.Namespace) -> None:
    for resource, rules in wanted_of(args).items():
        pattern_type = _NAMES[resource.pattern_type]
        shown = f"ResourcePattern(resourceType={resource.resource_type.name}, name={resource.name}, patternType={pattern_type})"
        question = f"Are you sure you want to delete all ACLs for resource filter `{shown}`? (y/n)"
        if rules:
            question = f"Are you sure you want to remove ACLs: \n {_lines(rules)}\n from resource filter `{shown}`? (y/n)"
        if _is_confirmed(args, question):
            acl_admin.delete_acls(cluster, [resource.filter(rule) for rule in rules] or [resource.filter()])


def _is_confirmed(args: argparse.Namespace, question: str) -> bool:
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


def make(_: str, __: list[str]) -> Command:
    return Command("Access rules, as kafka-acls has them.", _arguments, _run, has_output=False)
