"""Options of both `ottla group` and `ottla share-group`: groups, states, and views of `describe`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.cli.command import UsageError, merged
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.group_admin import list_groups

CONSUMERS = ("consumer", "")
SHARES = ("share",)


def add_group_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="*", metavar="GROUP", help="groups")
    add("-g", "--group", action="append", default=[], metavar="GROUP", help="a group, as an option, repeatable")
    add("--all-groups", action="store_true", help="every group")
    add("--timeout", type=int, metavar="MS", help="how long to wait for the cluster")


def chosen_groups(cluster: Cluster, args: argparse.Namespace, protocols: Sequence[str] = CONSUMERS) -> list[str]:
    """The named groups, or all groups of these protocols with --all-groups."""
    names = list(dict.fromkeys([*args.names, *args.group]))
    if bool(names) == bool(args.all_groups):
        raise UsageError("name groups, or give --all-groups" if not names else "either groups or --all-groups, not both")
    if args.all_groups:
        return [group.group_id for group in list_groups(cluster) if group.protocol_type in protocols]
    return names


def known_words(option: str, texts: list[str] | None, known: Sequence[str]) -> list[str]:
    """The words of a filter such as `--state`. UsageError for an unknown one: the broker would find nothing and say nothing."""
    words = merged(texts)
    lower = {word.lower() for word in known}
    if any(word.lower() not in lower for word in words):
        raise UsageError(f"Invalid {option} list '{','.join(words)}'. Valid {option}s are: {', '.join(known)}")
    return words
