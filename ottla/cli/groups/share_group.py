"""`ottla share-group`: list, describe, delete, reset-offsets, delete-offsets.

A share group has no position in a partition: START-OFFSET is the first record that is not yet acknowledged or archived, LAG the number of
records from there on that are still to be delivered or acknowledged. Resetting moves the start, with the scopes, scenarios and modes of
`reset_offsets.py`.
"""

from __future__ import annotations

import argparse
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Command, UsageError
from ottla.cli.groups import reset_offsets
from ottla.cli.groups.deletion import delete_groups, report_deletion
from ottla.cli.groups.group_options import SHARES, add_group_options, add_view_options, check_one_view, chosen_groups, known_words
from ottla.cli.groups.group_rows import coordinator_text, without_group
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.output import Columns, Row
from ottla.client.blocking import group_admin, share_admin
from ottla.client.blocking.cluster import Cluster, nearest_hint
from ottla.client.blocking.share_admin import ShareGroup

STATES = ("Empty", "Stable", "Dead")

OFFSET_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("START-OFFSET", "start_offset"),
    ("LAG", "lag"),
)
VERBOSE_OFFSET_COLUMNS: Columns = (*OFFSET_COLUMNS[:3], ("LEADER-EPOCH", "leader_epoch"), *OFFSET_COLUMNS[3:])
MEMBER_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("CONSUMER-ID", "consumer_id"),
    ("HOST", "host"),
    ("CLIENT-ID", "client_id"),
    ("#PARTITIONS", "partition_count"),
    ("ASSIGNMENT", "assignment"),
)
VERBOSE_MEMBER_COLUMNS: Columns = (*MEMBER_COLUMNS[:5], ("MEMBER-EPOCH", "member_epoch"), MEMBER_COLUMNS[5])
STATE_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("COORDINATOR (ID)", "coordinator"),
    ("STATE", "state"),
    ("#MEMBERS", "member_count"),
)
VERBOSE_STATE_COLUMNS: Columns = (*STATE_COLUMNS[:3], ("GROUP-EPOCH", "epoch"), ("ASSIGNMENT-EPOCH", "assignment_epoch"), STATE_COLUMNS[3])


# list


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="only groups in these states")


def listed_groups(cluster: Cluster, states: list[str]) -> list[group_admin.ListedGroup]:
    """All share groups, by name. A state's name is sent as Kafka writes it, since brokers compare it exactly."""
    named = [state for state in STATES if state.lower() in {word.lower() for word in states}]
    return group_admin.list_groups(cluster, states=named, types=[share_admin.TYPE])


def _list(args: argparse.Namespace) -> int:
    states = known_words("state", args.state, STATES)
    with connect(args) as cluster:
        found = listed_groups(cluster, states)
    rows = [{"group": group.group_id, "state": group.state, "coordinator": group.coordinator} for group in found]
    output_of(args).show("groups", rows, (("GROUP", "group"), ("STATE", "state"), ("COORDINATOR", "coordinator")))
    return 0


# describe


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    add_view_options(parser, offsets_help="start offsets and lag (the default)", verbose_help="more columns")


def _describe(args: argparse.Namespace) -> int:
    check_one_view(args)
    output = output_of(args)
    with connect(args) as cluster:
        groups = [described(cluster, name) for name in chosen_groups(cluster, args, SHARES)]
        has_offsets = output.is_structured or not (args.members or args.state)
        offsets = [row for group in groups for row in offset_rows(cluster, group.group_id)] if has_offsets else []
        addresses = {group.coordinator: cluster.brokers.get(group.coordinator) for group in groups}
    for group in groups:
        if not group.members:
            output.note(f"Share group '{group.group_id}' has no active members.")
    if output.is_structured:
        output.show("groups", [_as_object(group, offsets) for group in groups], ())
    elif args.members:
        rows = [row for group in groups for row in member_rows(group)]
        output.show("members", rows, VERBOSE_MEMBER_COLUMNS if args.verbose else MEMBER_COLUMNS)
    elif args.state:
        states = [_state_row(group, addresses[group.coordinator]) for group in groups]
        output.show("groups", states, VERBOSE_STATE_COLUMNS if args.verbose else STATE_COLUMNS)
    else:
        output.show("offsets", offsets, VERBOSE_OFFSET_COLUMNS if args.verbose else OFFSET_COLUMNS)
    return 0


def described(cluster: Cluster, name: str) -> ShareGroup:
    """Describes a share group. An unknown name is refused with the nearest name, or with the kind of group that has it."""
    try:
        return share_admin.describe_share_group(cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    kinds = {group.group_id: group.type.lower() for group in group_admin.list_groups(cluster)}
    if kinds.get(name, share_admin.TYPE) != share_admin.TYPE:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} is a {kinds[name]} group; see `ottla group describe {name}`")
    shares = [known for known, kind in kinds.items() if kind == share_admin.TYPE]
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {name!r} not found{nearest_hint(name, shares)}")


def offset_rows(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """A row for each partition that the group has started. An error of one partition ends the command: half a table misleads."""
    rows = []
    for partition, found in share_admin.share_offsets(cluster, name).items():
        if found.error is not None:
            raise found.error
        rows.append(
            {
                "group": name,
                "topic": partition.topic,
                "partition": partition.partition,
                "leader_epoch": None if found.start_offset is None else found.leader_epoch,
                "start_offset": found.start_offset,
                "lag": found.lag,
            }
        )
    return rows


def member_rows(group: ShareGroup) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "consumer_id": member.member_id,
            "host": member.host,
            "client_id": member.client_id,
            "rack": member.rack,
            "partition_count": len(member.assignment),
            "member_epoch": member.epoch,
            "assignment": [str(partition) for partition in member.assignment],
        }
        for member in group.members
    ]


def _state_row(group: ShareGroup, address: object) -> Row:
    return {
        "group": group.group_id,
        "coordinator": coordinator_text(address, group.coordinator),
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }


def _as_object(group: ShareGroup, offsets: list[dict[str, Any]]) -> Row:
    """The group as JSON, the same for all views."""
    own = without_group(row for row in offsets if row["group"] == group.group_id)
    return {
        "group": group.group_id,
        "type": "Share",
        "state": group.state,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": without_group(member_rows(group)),
        "offsets": own,
        "lag": sum(row["lag"] or 0 for row in own),
    }


# delete, delete-offsets


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    add_yes(parser)


def _delete(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        names = chosen_groups(cluster, args, SHARES)
        for name in names:
            described(cluster, name)  # refuses other kinds of groups
        confirm(args, f"Delete {', '.join(names)} with the state of their records?")
        failures = delete_groups(cluster, names)
    return report_deletion(output, names, failures)


def _delete_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="delete the group's offsets of this topic; repeatable")
    add_yes(parser)


def _delete_offsets(args: argparse.Namespace) -> int:
    if not args.topic:
        raise UsageError("give --topic TOPIC, repeatable")
    output = output_of(args)
    topics = list(dict.fromkeys(args.topic))
    rows = []
    with connect(args) as cluster:
        for name in chosen_groups(cluster, args, SHARES):
            described(cluster, name)
            confirm(args, f"Delete the offsets of {name} in {', '.join(topics)}?")
            for topic, error in sorted(share_admin.delete_share_offsets(cluster, name, topics).items()):
                rows.append({"group": name, "topic": topic, "status": "Successful" if error is None else error.code.name})
    output.show("topics", rows, (("GROUP", "group"), ("TOPIC", "topic"), ("STATUS", "status")))
    return 1 if any(row["status"] != "Successful" for row in rows) else 0


# reset-offsets


def state_of(cluster: Cluster, name: str) -> str:
    """The state of a share group; empty if it does not exist, since a reset creates it. Refuses the name of another kind of group."""
    try:
        return share_admin.describe_share_group(cluster, name).state
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    if any(group.group_id == name and group.type.lower() != share_admin.TYPE for group in group_admin.list_groups(cluster)):
        described(cluster, name)
    return ""


def _starts(cluster: Cluster, name: str) -> dict[TopicPartition, int | None]:
    """The start offset of each partition; none where no member has read yet."""
    if not state_of(cluster, name):
        return {}
    return {partition: found.start_offset for partition, found in share_admin.share_offsets(cluster, name).items()}


STARTS = reset_offsets.OffsetStore(SHARES, state_of, _starts, share_admin.alter_share_offsets)


COMMANDS = {
    "list": Command("All share groups.", _list_arguments, _list, may_watch=True),
    "describe": Command("Offsets, members or state of share groups.", _describe_arguments, _describe, may_watch=True),
    "reset-offsets": Command(
        "Reset the start offsets of share groups; shows the plan unless --execute is given.",
        reset_offsets.COMMAND.add_arguments,
        lambda args: reset_offsets.run(args, STARTS),
    ),
    "delete": Command("Delete share groups.", _delete_arguments, _delete),
    "delete-offsets": Command("Delete the offsets of share groups in some topics.", _delete_offsets_arguments, _delete_offsets),
}
