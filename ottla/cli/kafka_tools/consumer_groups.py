"""`kafka-consumer-groups` and `kafka-groups`: Kafka's options, columns and messages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.name_pattern import NamePattern, PatternError
from ottla.base.types import TopicPartition
from ottla.cli.command import Command, Refused, UsageError, merged
from ottla.cli.groups import group, reset_offsets
from ottla.cli.groups.deletion import delete_groups
from ottla.cli.groups.group_options import chosen_groups
from ottla.cli.groups.group_scope import parse_scope, scope_partitions
from ottla.cli.groups.reset_plan import format_reset_file
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
from ottla.client.blocking import group_admin
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.blocking.group_admin import GroupDescription
from ottla.client.errors import KafkaError

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets", "validate_regex")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS[:-1]:
        name = action.replace("_", "-")
        add(f"--{name}", action="store_true", help=f"{name} groups" if "-" not in name else name.replace("-", " "))
    add("--validate-regex", metavar="REGEX", help="check a regular expression for subscriptions")
    add("--group", action="append", default=[], metavar="GROUP", help="a group, repeatable")
    add("--all-groups", action="store_true", help="every group")
    add("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="show states; with --list only these")
    add("--type", nargs="?", action="append", const="", metavar="TYPE[,...]", help="show types; with --list only these")
    add("--members", action="store_true", help="the members of the group")
    add("--offsets", action="store_true", help="committed offsets (the default)")
    add("-v", "--verbose", action="store_true", help="more columns")
    add("--timeout", type=int, metavar="MS", help="how long to wait for the cluster")
    reset_offsets.add_reset_options(parser)
    add("--new-consumer", action="store_true", help=argparse.SUPPRESS)


def _run(args: argparse.Namespace) -> int:
    action = action_of(args, ACTIONS)
    args.names = []
    if args.new_consumer:
        write_error("--new-consumer has no effect any more\n")
    if action == "validate_regex":
        return _validate_regex(args.validate_regex)
    if action == "reset_offsets":
        reset_offsets.check_usage(args)
    do = {"list": _list, "describe": _describe, "delete": _delete, "reset_offsets": _reset, "delete_offsets": _delete_offsets}[action]
    with connect(args) as cluster:
        try:
            return do(cluster, args)
        except ApiError as error:
            message = java_error(error, error.message) if error.code is ErrorCode.GROUP_ID_NOT_FOUND else plain_message(error)
            write(f"\nError: Executing consumer group command failed due to {message}\n")
    return 1


def _validate_regex(pattern: str) -> int:
    """Checks a pattern as the broker does for subscriptions, and words errors as Kafka's tool does."""
    verdict = "valid"
    try:
        NamePattern(pattern)
    except PatternError as error:
        reason, _, place = str(error).partition(": ")
        verdict = "invalid: " + (f"{reason}: `{place}`" if place else reason)
        if reason == "invalid perl operator":
            verdict = "invalid: invalid or unsupported Perl syntax"
    write(f"The regular expression `{pattern}` is {verdict}.\n")
    return 0


# list


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    group.check_list_filters(args)
    found = group_admin.list_groups(cluster, states=merged(args.state), types=merged(args.type))
    found = [listed for listed in found if listed.protocol_type in ("consumer", "")]
    if args.state is None and args.type is None:
        write("".join(f"{listed.group_id}\n" for listed in found))
        return 0
    shown = [("TYPE", "type")] * (args.type is not None) + [("STATE", "state")] * (args.state is not None)
    line = columns([widest([listed.group_id for listed in found]) + 10, *(20 for _ in shown)])
    write(line("GROUP", *(title for title, _ in shown)))
    for listed in found:
        texts = {"type": listed.type.capitalize(), "state": listed.state}
        write(line(listed.group_id, *(texts[key] for _, key in shown)))
    return 0


# describe


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    if sum((args.offsets, args.members, args.state is not None)) > 1:
        raise UsageError("describe takes at most one of --members, --offsets, --state")
    names = chosen_groups(cluster, args)
    is_refused = False
    for name in names:
        described = group_admin.describe_group(cluster, name)
        if described.state == "Dead" and not group_admin.committed_offsets(cluster, name):
            known = [listed.group_id for listed in group_admin.list_groups(cluster)]
            unknown = ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} {'is not a consumer group' if name in known else 'not found'}.")
            write(f"\nError: Executing consumer group command failed due to {java_error(unknown, unknown.message)}\n")
            hint = "" if name in known else nearest_hint(name, known)
            write_error(hint.removeprefix("; ") + "\n" if hint else "")
            is_refused = True
            continue
        _note_state(described)
        if args.members:
            _show_members(described, is_verbose=args.verbose)
        elif args.state is not None:
            _show_state(cluster, described, is_verbose=args.verbose)
        else:
            _show_offsets(group.offset_rows(cluster, described), is_verbose=args.verbose)
    return 1 if is_refused else 0


def _note_state(described: GroupDescription) -> None:
    if described.state == "Empty":
        write_error(f"\nConsumer group '{described.group_id}' has no active members.\n")
    elif described.state not in ("Stable", "Dead"):
        write_error(f"\nWarning: Consumer group '{described.group_id}' is rebalancing.\n")


def _show_offsets(rows: list[dict[str, Any]], *, is_verbose: bool) -> None:
    if not rows:
        return
    keys = ["group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id"]
    titles = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    widths = [
        widest([row["group"] for row in rows]),
        widest([row.get("topic") for row in rows]),
        10,
        WIDTH,
        WIDTH,
        WIDTH,
        widest([row.get("consumer_id") for row in rows]),
        widest([row.get("host") for row in rows]),
        0,
    ]
    if is_verbose:
        keys.insert(3, "leader_epoch")
        titles.insert(3, "LEADER-EPOCH")
        widths.insert(3, WIDTH)
    line = columns(widths)
    write("\n" + line(*titles))
    write("".join(line(*(row.get(key) for key in keys)) for row in rows))


def _show_members(described: GroupDescription, *, is_verbose: bool) -> None:
    members = described.members
    has_instances = any(member.instance_id for member in members)
    widths = [
        widest([described.group_id]) if members else WIDTH,
        widest([member.member_id for member in members]),
        widest([member.instance_id for member in members], len("GROUP-INSTANCE-ID")),
        widest([member.host for member in members]),
        widest([member.client_id for member in members]),
        WIDTH,
    ]
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    if is_verbose:
        current = [assignment_text(member.assignment) for member in members]
        target = [assignment_text(member.target or ()) for member in members]
        widths += [WIDTH, widest(current, 20), WIDTH, widest(target, 20)]
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    if not has_instances:
        del widths[2], titles[2]
    line = columns(widths if is_verbose else [*widths[:-1], widths[-1] + 1])
    write("\n" + line(*titles))
    for number, member in enumerate(members):
        cells: list[Any] = [described.group_id, member.member_id, member.instance_id, member.host, member.client_id, len(member.assignment)]
        if is_verbose:
            cells += [member.epoch, current[number], described.target_epoch, target[number]]
        if not has_instances:
            del cells[2]
        write(line(*cells))


def _show_state(cluster: Cluster, described: GroupDescription, *, is_verbose: bool) -> None:
    address = cluster.brokers.get(described.coordinator)
    coordinator = f"{address}  ({described.coordinator})"
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells: list[Any] = [described.group_id, coordinator, described.assignor, described.state]
    widths = [widest([described.group_id]), widest([coordinator], 25), 20, 20]
    if is_verbose:
        titles += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [described.epoch, described.target_epoch]
        widths += [WIDTH, 25]
    line = columns([*widths, 0])
    write("\n" + line(*titles, "#MEMBERS") + line(*cells, len(described.members)))


# reset-offsets


def _reset(cluster: Cluster, args: argparse.Namespace) -> int:
    refuse_missing(cluster, args)
    try:
        plans = reset_offsets.make_plans(cluster, args)
    except reset_offsets.ActiveError as error:
        if not args.export:
            why = f"Assignments can only be reset if the group '{error.group}' is inactive, but the current state is {error.state}."
            write(f"\nError: {why}\n")
            write("\n" + columns([WIDTH, WIDTH, 10, 0])("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"))
        return 1
    except Refused as error:
        write_error(f"error: {error}\n")
        return 1
    write_warnings(plans)
    failures = reset_offsets.execute(cluster, plans) if args.execute else {}
    if not args.execute and not args.dry_run:
        write_error("nothing was changed; add --execute to do it\n")
    if args.export:
        write(format_reset_file(plans, is_quoted=False) + "\n")
    else:
        write_plans(plans)
    return write_failures(failures)


# delete, delete-offsets


def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    names = chosen_groups(cluster, args)
    failures = delete_groups(cluster, names)
    return write_deletions("consumer", names, {name: java_error(error) for name, error in failures.items()})


def _delete_offsets(cluster: Cluster, args: argparse.Namespace) -> int:
    if len(args.group) != 1 or not args.topic:
        raise UsageError("--delete-offsets takes one --group and one or more --topic")
    name = args.group[0]
    failure = None
    partitions = sorted(_named_partitions(cluster, args.topic))
    try:
        results = group_admin.delete_offsets(cluster, name, partitions)
    except KafkaError as error:
        failure = error
        results = dict.fromkeys(partitions, error)
    if failure is not None:
        write(f"\nError: {java_error(failure).partition(': ')[2]}\n")
    elif any(results.values()):
        write("\nError: Encountered some partition-level error, see the follow-up details.\n")
    else:
        write(f"Request succeeded for deleting offsets from group {name}.\n")
    line = columns([widest([partition.topic for partition in results]), 10, WIDTH])
    write("\n" + line("TOPIC", "PARTITION", "STATUS"))
    for partition, failed in sorted(results.items(), key=lambda item: item[0]):
        write(line(partition.topic, partition.partition, "Successful" if failed is None else f"Error: {java_error(failed)}"))
    return 1 if any(results.values()) else 0


def _named_partitions(cluster: Cluster, topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions that --topic selects. Those of a topic that no longer exists must be named."""
    found = []
    there = set(cluster.topic_names())
    for topic, numbers in parse_scope(topics).items():
        if topic not in there and numbers is not None:
            found += [TopicPartition(topic, number) for number in numbers]
        else:
            found += scope_partitions(cluster, [topic if numbers is None else f"{topic}:{','.join(map(str, numbers))}"], False, [])
    return found


# kafka-groups


def _groups_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--list", action="store_true", help="list groups of every kind")
    add("--group-type", metavar="TYPE", help="classic, consumer, share or streams")
    add("--protocol", metavar="PROTOCOL", help="only groups of this protocol")
    for kind in ("consumer", "share", "streams"):
        add(f"--{kind}", action="store_true", help=f"only {kind} groups")


def _groups(args: argparse.Namespace) -> int:
    if not args.list:
        raise UsageError('Missing required argument "[list]"')
    with connect(args) as cluster:
        found = group_admin.list_groups(cluster)
    if args.consumer:  # as Kafka means it: groups of consumers, by whichever protocol
        found = [listed for listed in found if listed.protocol_type in ("consumer", "") and listed.type.lower() in ("classic", "consumer")]
    kinds = [args.group_type] if args.group_type else ["share"] * args.share + ["streams"] * args.streams
    found = [listed for listed in found if (not kinds or listed.type.lower() in kinds)]
    found = [listed for listed in found if args.protocol is None or listed.protocol_type == args.protocol]
    width = widest([listed.group_id for listed in found], 20)
    write(f"{'GROUP':<{width}} {'TYPE':<{width}} {'PROTOCOL':<{width}}\n")
    for listed in found:
        write(f"{listed.group_id:<{width}} {listed.type.capitalize():<{width}} {listed.protocol_type:<{width}} \n")
    return 0


def make(tool: str, _: list[str]) -> Command:
    if tool == "kafka-groups":
        return Command("Groups of every kind, as kafka-groups has it.", _groups_arguments, _groups, has_output=False)
    return Command("Consumer groups, as kafka-consumer-groups has it.", _arguments, _run, has_output=False)
