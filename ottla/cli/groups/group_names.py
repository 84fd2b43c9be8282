"""Which groups does a command mean? By position, by `--group`, or all of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.cli.command import UsageError
from ottla.client.cluster import Cluster
from ottla.client.group_admin import list_groups

CONSUMERS = ("consumer", "")
SHARES = ("share",)


def add_group_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="*", metavar="GROUP", help="groups")
    add("-g", "--group", action="append", default=[], metavar="GROUP", help="the same as an option, repeatable")
    add("--all-groups", action="store_true", help="every group")
    add("--timeout", type=int, metavar="MS", help="how long to wait for the cluster")


def chosen_groups(cluster: Cluster, args: argparse.Namespace, protocols: Sequence[str] = CONSUMERS) -> list[str]:
    """The groups' names; at least one is named unless all of these protocols are meant."""
    names = list(dict.fromkeys([*args.names, *args.group]))
    if bool(names) == bool(args.all_groups):
        raise UsageError("name groups, or say --all-groups" if not names else "either groups or --all-groups, not both")
    if args.all_groups:
        return [group.group_id for group in list_groups(cluster) if group.protocol_type in protocols]
    return names
