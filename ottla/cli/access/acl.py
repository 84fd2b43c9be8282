"""`ottla acl`: access rules (ACLs). A rule allows or denies a principal an operation on topics, groups and other resources."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.acls import AclFilter, Binding, java_name
from ottla.base.counted import counted
from ottla.cli.access.acl_options import RESOURCE_OPTIONS, RULE_OPTIONS, bindings_of, principal_of, resources_of, wanted_of
from ottla.cli.command import Args, command, option
from ottla.cli.options import YES, confirm
from ottla.cli.render.ottla import Output
from ottla.cli.render.rows import Row
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin


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
    "Access rules, of all resources or of some.",
    *RESOURCE_OPTIONS,
    option("--principal", action="append", metavar="User:NAME", help="only rules about these; repeatable"),
    may_watch=True,
)
def _list(args: Args, cluster: Cluster, output: Output) -> None:
    principals = [principal_of(text) for text in args.principal or ()]
    filters = [resource.filter() for resource in resources_of(args)] or [AclFilter()]
    found = sorted(dict.fromkeys(binding for each in filters for binding in acl_admin.describe_acls(cluster, each)))
    shown = [binding for binding in found if not principals or binding.rule.principal in principals]
    output.rows("acls", RuleRow, _rows(shown))


OPTIONS = (*RESOURCE_OPTIONS, *RULE_OPTIONS)


@command("acl add", "Allow or deny principals something.", *OPTIONS)
def _add(args: Args, cluster: Cluster, output: Output) -> None:
    bindings = bindings_of(args)
    acl_admin.create_acls(cluster, bindings)
    output.done(f"Added {_count(len(bindings))}.", {"added": [row.as_json() for row in _rows(bindings)]})


@command("acl remove", "Remove access rules.", *OPTIONS, YES)
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
