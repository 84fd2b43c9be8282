"""`ottla acl`: access rules (ACLs). A rule allows or denies a principal an operation on topics, groups and other resources."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.base.acls import AclFilter, Binding, java_name
from ottla.base.counted import counted
from ottla.cli.access.acl_options import (
    add_resource_options,
    add_rule_options,
    bindings_of,
    principal_of,
    resources_of,
    wanted_of,
)
from ottla.cli.command import Command
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.render.rows import Row
from ottla.client.core import acl_admin


class RuleRow(Row):
    """An access rule."""

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


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_resource_options(parser)
    parser.add_argument("--principal", action="append", metavar="User:NAME", help="only rules about these; repeatable")


def _list(args: argparse.Namespace) -> int:
    principals = [principal_of(text) for text in args.principal or ()]
    filters = [resource.filter() for resource in resources_of(args)] or [AclFilter()]
    with connect(args) as cluster:
        found = sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each)))
    shown = [binding for binding in found if not principals or binding.rule.principal in principals]
    output_of(args).rows("acls", RuleRow, _rows(shown))
    return 0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_resource_options(parser)
    add_rule_options(parser)


def _add(args: argparse.Namespace) -> int:
    bindings = bindings_of(args)
    with connect(args) as cluster:
        acl_admin.create_acls(cluster, bindings)
    output_of(args).done(f"Added {_count(len(bindings))}.", {"added": [row.as_json() for row in _rows(bindings)]})
    return 0


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    add_yes(parser)


def _remove(args: argparse.Namespace) -> int:
    filters = [
        resource.filter(rule) for resource, rules in wanted_of(args).items() for rule in (rules or [None])  # type: ignore[list-item]
    ]
    with connect(args) as cluster:
        unwanted = sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each)))
        for row in _rows(unwanted):
            output_of(args).note(" ".join(str(value) for value in vars(row).values()))
        confirm(args, f"Remove {_count(len(unwanted))}?")
        removed = acl_admin.delete_acls(cluster, filters)
    output_of(args).done(f"Removed {_count(len(removed))}.", {"removed": [row.as_json() for row in _rows(removed)]})
    return 0


def _count(number: int) -> str:
    return counted(number, "access rule")


COMMANDS = {
    "list": Command("Access rules, of all resources or of some.", _list_arguments, _list, may_watch=True),
    "add": Command("Allow or deny principals something.", _add_arguments, _add),
    "remove": Command("Remove access rules.", _remove_arguments, _remove),
}
