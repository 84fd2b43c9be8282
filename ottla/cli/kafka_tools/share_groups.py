"""`kafka-share-groups`, `kafka-console-share-consumer`, `kafka-share-consumer-perf-test`: Kafka's options, columns and messages.

The two tools that read are translated to commands of ours; the default group and the refusal of two group names are Kafka's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Command, Translation, UsageError
from ottla.cli.groups import reset_offsets, share_group
from ottla.cli.groups.deletion import delete_groups
from ottla.cli.groups.group_options import SHARES, chosen_groups, known_words
from ottla.cli.kafka_tools.arguments import action_of
from ottla.cli.kafka_tools.group_tables import (
    WIDTH,
    assignment_text,
    columns,
    refuse_missing,
    widest,
    write_deletions,
    write_failures,
    write_plans,
    write_warnings,
)
from ottla.cli.kafka_tools.java_errors import java_error, plain_message
from ottla.cli.options import connect
from ottla.cli.output import write, write_error
from ottla.client.blocking import share_admin
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.blocking.share_admin import ShareGroup

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
CONSOLE_GROUP = "console-share-consumer"


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS:
        name = action.replace("_", "-")
        add(f"--{name}", action="store_true", help=name.replace("-", " "))
    add("--group", action="append", default=[], metavar="GROUP", help="a share group, repeatable")
    add("--all-groups", action="store_true", help="every share group")
    add("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="show states; with --list only these")
    add("--members", action="store_true", help="the members of the group")
    add("--offsets", action="store_true", help="where partitions start (the default)")
    add("-v", "--verbose", action="store_true", help="more columns")
    add("--timeout", type=int, metavar="MS", help="how long to wait for the cluster")
    reset_offsets.add_reset_options(parser)


def _run(args: argparse.Namespace) -> int:
    action = action_of(args, ACTIONS)
    args.names = []
    _check_usage(args, action)
    do = {"list": _list, "describe": _describe, "delete": _delete, "reset_offsets": _reset, "delete_offsets": _delete_offsets}[action]
    with connect(args) as cluster:
        try:
            return do(cluster, args)
        except ApiError as error:
            message = java_error(error, error.message) if error.code is ErrorCode.GROUP_ID_NOT_FOUND else plain_message(error)
            write(f"\nError: Executing share group command failed due to {message}\n")
    return 1


def _check_usage(args: argparse.Namespace, action: str) -> None:
    """Raises UsageError for what Kafka's tool refuses before it asks a broker."""
    if action in ("delete", "describe"):
        if args.group and args.all_groups:
            raise UsageError(f"Option [{action}] takes either [group] or [all-groups], not both.")
        if not args.group and not args.all_groups:
            raise UsageError(f"Option [{action}] takes the options [group] or [all-groups]")
    if action == "delete_offsets" and not (args.group and args.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset_offsets":
        if not args.execute and not args.dry_run:
            raise UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")
        reset_offsets.check_usage(args)
    if action in ("reset_offsets", "delete_offsets") and len(args.group) != 1:
        raise UsageError("--reset-offsets and --delete-offsets take one --group")


# list


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    found = share_group.listed_groups(cluster, known_words("state", args.state, share_group.STATES))
    if args.state is None:
        write("".join(f"{listed.group_id}\n" for listed in found))
        return 0
    line = columns([widest([listed.group_id for listed in found]), 0])
    write(line("GROUP", "STATE") + "".join(line(listed.group_id, listed.state) for listed in found))
    return 0


# describe


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    if sum((args.offsets, args.members, args.state is not None)) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    for name in chosen_groups(cluster, args, SHARES):
        found = _found(cluster, name)
        if args.members:
            _show_members(found, is_verbose=args.verbose)
        elif args.state is not None:
            _show_state(cluster, found, is_verbose=args.verbose)
        else:
            _show_offsets(name, share_group.offset_rows(cluster, name), is_verbose=args.verbose)
    return 0


def _found(cluster: Cluster, name: str) -> ShareGroup:
    """Describes a share group. An unknown one is refused with Kafka's message and a hint of ours."""
    try:
        return share_admin.describe_share_group(cluster, name)
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            hint = nearest_hint(name, [listed.group_id for listed in share_group.listed_groups(cluster, [])])
            write_error(hint.removeprefix("; ") + "\n" if hint else "")
            raise ApiError(error.code, f"Group {name} not found.") from None
        raise


def _show_offsets(name: str, rows: list[dict[str, Any]], *, is_verbose: bool) -> None:
    if not rows:
        write(f"\nShare group '{name}' has no offset information.\n")
        return
    keys = ["group", "topic", "partition", "start_offset", "lag"]
    titles = ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    widths = [widest([name]), widest([row["topic"] for row in rows]), 10, 13, 0]
    if is_verbose:
        keys.insert(3, "leader_epoch")
        titles.insert(3, "LEADER-EPOCH")
        widths.insert(3, 13)
    line = columns(widths)
    write("\n" + line(*titles))
    write("".join(line(*(row[key] for key in keys)) for row in rows))


def _show_members(found: ShareGroup, *, is_verbose: bool) -> None:
    if not found.members:
        write_error(f"\nShare group '{found.group_id}' has no active members.\n")
        return
    widths = [
        widest([found.group_id]),
        widest([member.member_id for member in found.members]),
        widest([member.host for member in found.members]),
        widest([member.client_id for member in found.members]),
        12,
        0,
    ]
    titles = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    if is_verbose:
        titles.insert(5, "MEMBER-EPOCH")
        widths.insert(5, 13)
    line = columns(widths)
    write("\n" + line(*titles))
    for member in found.members:
        cells: list[Any] = [found.group_id, member.member_id, member.host, member.client_id, len(member.assignment)]
        if is_verbose:
            cells.append(member.epoch)
        write(line(*cells, assignment_text(member.assignment)) if member.assignment else line(*cells, " ").rstrip() + " \n")


def _show_state(cluster: Cluster, found: ShareGroup, *, is_verbose: bool) -> None:
    if not found.members:
        write_error(f"\nShare group '{found.group_id}' has no active members.\n")
    coordinator = f"{cluster.brokers.get(found.coordinator)}  ({found.coordinator})"
    titles = ["GROUP", "COORDINATOR (ID)", "STATE"]
    cells: list[Any] = [found.group_id, coordinator, found.state]
    widths = [widest([found.group_id]), widest([coordinator], 25), WIDTH]
    if is_verbose:
        titles += ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        cells += [found.epoch, found.assignment_epoch]
        widths += [12, 17]
    line = columns([*widths, 0])
    write("\n" + line(*titles, "#MEMBERS") + line(*cells, len(found.members)))


# reset-offsets


def _reset(cluster: Cluster, args: argparse.Namespace) -> int:
    refuse_missing(cluster, args)
    try:
        plans = reset_offsets.make_plans(cluster, args, share_group.STARTS)
    except reset_offsets.ActiveError as error:
        write_error(f"Share group '{error.group}' is not empty.\n")
        return 1
    write_warnings(plans)
    failures = reset_offsets.execute(cluster, plans, share_group.STARTS) if args.execute else {}
    write_plans(plans)
    return write_failures(failures)


# delete, delete-offsets


def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    known = {listed.group_id for listed in share_group.listed_groups(cluster, [])}
    names = chosen_groups(cluster, args, SHARES)
    failures = {name: f"java.lang.IllegalArgumentException: Group '{name}' is not a share group." for name in names if name not in known}
    refused = delete_groups(cluster, [name for name in names if name in known])
    not_empty = ErrorCode.NON_EMPTY_GROUP
    failures.update(
        {
            name: java_error(error, f"Share group '{name}' is not EMPTY." if error.code is not_empty else "")
            for name, error in refused.items()
        }
    )
    return write_deletions("share", names, failures)


def _delete_offsets(cluster: Cluster, args: argparse.Namespace) -> int:
    topics = list(dict.fromkeys(args.topic))
    why = {}
    try:
        _found(cluster, args.group[0])
        results = share_admin.delete_share_offsets(cluster, args.group[0], topics)
    except ApiError as error:
        found = error.message if error.code is ErrorCode.GROUP_ID_NOT_FOUND else java_error(error).partition(": ")[2]
        write(f"\nError: {found}\n")
        why = dict.fromkeys(topics, found)
    else:
        why = {topic: java_error(error).partition(": ")[2] for topic, error in results.items() if error is not None}
    line = columns([widest(topics), 0])
    write("\n" + line("TOPIC", "STATUS"))
    write("".join(line(topic, f"Error: {why[topic]}" if topic in why else "Successful") for topic in topics))
    return 1 if why else 0


# The consumers


def _console_consumer(arguments: list[str]) -> Translation:
    """Translates the console share consumer. The group may be given by `--group` and as a property, but must be the same."""
    names = {"--group": "--share-group", "--consumer-config": "--command-config"}
    rest: list[str] = []
    groups: list[str] = []
    for position, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == "--group":
            groups.append(value if equals else "".join(arguments[position + 1 : position + 2]))
        elif word.startswith("group.id="):
            groups.append(value)
        rest.append(names.get(name, name) + equals + value)
    if len(set(groups)) > 1:
        raise UsageError(f"the group ids given in several places do not match: {', '.join(sorted(set(groups)))}")
    if "--share-group" not in {word.partition("=")[0] for word in rest}:
        rest += ["--share-group", groups[0] if groups else CONSOLE_GROUP]
    return Translation(["consume", *rest])


def make(tool: str, arguments: Sequence[str]) -> Command | Translation:
    if tool == "kafka-console-share-consumer":
        return _console_consumer(list(arguments))
    if tool == "kafka-share-consumer-perf-test":
        return Translation(["bench", "share-consumer", *arguments])
    return Command("Share groups, as kafka-share-groups has it.", _arguments, _run, has_output=False)
