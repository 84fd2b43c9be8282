"""`ottla group`: list, describe, lag, delete, delete-offsets; `reset-offsets` is in `reset_offsets.py`."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import READ_COMMITTED, TopicPartition
from ottla.cli.command import Command, Refused, UsageError, merged
from ottla.cli.groups import reset_offsets
from ottla.cli.groups.deletion import delete_groups, report_deletion
from ottla.cli.groups.group_options import add_group_options, add_view_options, check_one_view, chosen_groups, known_words
from ottla.cli.groups.group_rows import coordinator_text, without_group
from ottla.cli.options import add_yes, confirm, connect, output_of
from ottla.cli.output import Columns, Row
from ottla.client.blocking import group_admin
from ottla.client.blocking.admin import EARLIEST, LATEST, OffsetAt, list_offsets
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.group_admin import GroupDescription, GroupMember

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES = ("classic", "consumer", "share", "streams")

OFFSET_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT-OFFSET", "current_offset"),
    ("LOG-END-OFFSET", "log_end_offset"),
    ("LAG", "lag"),
    ("CONSUMER-ID", "consumer_id"),
    ("HOST", "host"),
    ("CLIENT-ID", "client_id"),
)
VERBOSE_OFFSET_COLUMNS: Columns = (*OFFSET_COLUMNS[:3], ("LEADER-EPOCH", "leader_epoch"), *OFFSET_COLUMNS[3:])
STABLE_COLUMNS: Columns = (("LAST-STABLE-OFFSET", "last_stable_offset"), ("STABLE-LAG", "stable_lag"), ("SECONDS", "lag_seconds"))
STABLE_OFFSET_COLUMNS: Columns = (*VERBOSE_OFFSET_COLUMNS[:7], *STABLE_COLUMNS, *VERBOSE_OFFSET_COLUMNS[7:])
MEMBER_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("CONSUMER-ID", "consumer_id"),
    ("HOST", "host"),
    ("CLIENT-ID", "client_id"),
    ("#PARTITIONS", "partition_count"),
)
STATE_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("COORDINATOR (ID)", "coordinator"),
    ("ASSIGNMENT-STRATEGY", "assignment_strategy"),
    ("STATE", "state"),
    ("#MEMBERS", "member_count"),
)
LAG_COLUMNS: Columns = (
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT-OFFSET", "current_offset"),
    ("LAST-STABLE-OFFSET", "last_stable_offset"),
    ("LOG-END-OFFSET", "log_end_offset"),
    ("LAG", "lag"),
    ("STABLE-LAG", "stable_lag"),
    ("SECONDS", "lag_seconds"),
)


# list


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state", nargs="?", action="append", const="", metavar="STATE[,...]", help="only groups in these states")
    parser.add_argument("--type", action="append", nargs="?", const="", metavar="TYPE[,...]", help="classic, consumer, share")
    parser.add_argument("--timeout", type=int, metavar="MS", help="how long to wait for the cluster")


def check_list_filters(args: argparse.Namespace) -> None:
    """UsageError for a state or a type that does not exist."""
    known_words("state", args.state, STATES)
    known_words("type", args.type, TYPES)


def _list(args: argparse.Namespace) -> int:
    check_list_filters(args)
    with connect(args) as cluster:
        found = group_admin.list_groups(cluster, states=merged(args.state), types=merged(args.type))
    rows = [
        {
            "group": group.group_id,
            "type": group.type.capitalize(),
            "protocol": group.protocol_type,
            "state": group.state,
            "coordinator": group.coordinator,
        }
        for group in found
    ]
    columns: Columns = (("GROUP", "group"), ("TYPE", "type"), ("PROTOCOL", "protocol"), ("STATE", "state"), ("COORDINATOR", "coordinator"))
    output_of(args).show("groups", rows, columns)
    return 0


# describe


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    verbose_help = "more columns: leader epochs, and the lag of readers of committed data"
    add_view_options(parser, offsets_help="committed offsets and lag (the default)", verbose_help=verbose_help)


def _describe(args: argparse.Namespace) -> int:
    check_one_view(args)
    output = output_of(args)
    with connect(args) as cluster:
        groups = [group_admin.describe_group(cluster, name) for name in chosen_groups(cluster, args)]
        _refuse_unknown(cluster, args, groups)
        offsets = [] if args.members or args.state else [row for group in groups for row in offset_rows(cluster, group)]
        is_stable_shown = not getattr(args, "is_shim", False) and (args.verbose or output.is_structured)
        if offsets and is_stable_shown:
            _add_stable_lag(cluster, groups, offsets)
    for group in groups:
        if group.state in group_admin.INACTIVE_STATES and group.state != "Dead":
            output.note(f"Consumer group '{group.group_id}' has no active members.")
        elif group.state not in ("Stable", "Dead"):
            output.note(f"Consumer group '{group.group_id}' is in state {group.state}: the assignment is about to change.")
    if output.is_structured:
        output.show("groups", [_as_object(group, offsets) for group in groups], ())
    elif args.members:
        rows = [row for group in groups for row in member_rows(group)]
        output.show("members", rows, (*MEMBER_COLUMNS, ("ASSIGNMENT", "assignment")) if args.verbose else MEMBER_COLUMNS)
    elif args.state:
        output.show("groups", [_state_row(cluster, group) for group in groups], STATE_COLUMNS)
    else:
        verbose = STABLE_OFFSET_COLUMNS if is_stable_shown else VERBOSE_OFFSET_COLUMNS
        has_totals = output.form == "table" and not getattr(args, "is_shim", False)
        output.show("offsets", with_totals(offsets) if has_totals else offsets, verbose if args.verbose else OFFSET_COLUMNS)
    return 0


def with_totals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of each group, followed by the sum of its lag if it has several partitions."""
    found = []
    for group, members in itertools.groupby(rows, key=lambda row: row["group"]):
        own = list(members)
        found += own
        if sum("partition" in row for row in own) > 1:
            sums = {key: sum(row.get(key) or 0 for row in own) for key in ("lag", "stable_lag") if any(key in row for row in own)}
            found.append({"group": group, "topic": "TOTAL", **sums})
    return found


def _add_stable_lag(cluster: Cluster, groups: list[GroupDescription], offsets: list[dict[str, Any]]) -> None:
    """Adds the lag of readers of committed data, as `ottla group lag` shows it."""
    found = {(row["group"], row["topic"], row["partition"]): row for group in groups for row in lag_rows(cluster, group.group_id)}
    for row in offsets:
        stable = found.get((row["group"], row.get("topic"), row.get("partition")), {})
        row.update({key: stable.get(key) for _, key in STABLE_COLUMNS})


def _refuse_unknown(cluster: Cluster, args: argparse.Namespace, groups: list[GroupDescription]) -> None:
    """Raises GROUP_ID_NOT_FOUND for a group that is dead and has committed nothing: it does not exist."""
    for group in groups:
        if group.state == "Dead" and not group_admin.committed_offsets(cluster, group.group_id):
            from ottla.client.blocking.cluster import nearest_hint

            known = {found.group_id: found.type.lower() for found in group_admin.list_groups(cluster)}
            if known.get(group.group_id) == "share":
                message = f"group {group.group_id!r} is a share group; see `ottla share-group describe {group.group_id}`"
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
            hint = nearest_hint(group.group_id, known)
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id!r} not found{hint}")


def offset_rows(cluster: Cluster, group: GroupDescription) -> list[dict[str, Any]]:
    """A row for each committed or assigned partition, with its end offset."""
    committed = group_admin.committed_offsets(cluster, group.group_id)
    owners: dict[TopicPartition, GroupMember] = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST)) if partitions else {}
    rows = []
    for partition in partitions:
        member, end = owners.get(partition), ends[partition]
        current = committed[partition].offset if partition in committed else None
        end_offset = end.offset if isinstance(end, OffsetAt) else None
        rows.append(
            {
                "group": group.group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "leader_epoch": _epoch_of(committed.get(partition)),
                "current_offset": current,
                "log_end_offset": end_offset,
                "lag": None if current is None or end_offset is None else max(0, end_offset - current),
                "consumer_id": member.member_id if member else None,
                "host": member.host if member else None,
                "client_id": member.client_id if member else None,
            }
        )
    return rows + _idle_members(group)


def _epoch_of(committed: group_admin.Committed | None) -> int | None:
    return None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch


def _idle_members(group: GroupDescription) -> list[dict[str, Any]]:
    """Rows of members without partitions."""
    return [
        {"group": group.group_id, "consumer_id": member.member_id, "host": member.host, "client_id": member.client_id}
        for member in group.members
        if not member.assignment
    ]


def member_rows(group: GroupDescription) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "partition_count": len(member.assignment),
            "assignment": [str(partition) for partition in member.assignment],
        }
        for member in group.members
    ]


def _state_row(cluster: Cluster, group: GroupDescription) -> Row:
    address = cluster.brokers.get(group.coordinator)
    return {
        "group": group.group_id,
        "coordinator": coordinator_text(address, group.coordinator),
        "assignment_strategy": group.assignor,
        "state": group.state,
        "member_count": len(group.members),
    }


def _as_object(group: GroupDescription, offsets: list[dict[str, Any]]) -> Row:
    """The group as JSON, the same for all views."""
    own = without_group(row for row in offsets if row["group"] == group.group_id)
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": without_group(member_rows(group)),
        "offsets": [row for row in own if "partition" in row],
        "lag": sum(row["lag"] or 0 for row in own if "partition" in row),
    }


# lag


def _lag(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        groups = [group_admin.describe_group(cluster, name) for name in chosen_groups(cluster, args)]
        _refuse_unknown(cluster, args, groups)
        rows = [row for group in groups for row in lag_rows(cluster, group.group_id)]
    totals = {"lag": sum(row["lag"] for row in rows), "stable_lag": sum(row["stable_lag"] for row in rows)}
    output.show("offsets", with_totals(rows) if output.form == "table" else rows, LAG_COLUMNS, extra=totals)
    return 0


def lag_rows(cluster: Cluster, group_id: str) -> list[dict[str, Any]]:
    """The lag of each partition: in records to the high watermark and the last stable offset, in seconds by the next record's age."""
    committed = group_admin.committed_offsets(cluster, group_id)
    ends = list_offsets(cluster, dict.fromkeys(committed, LATEST)) if committed else {}
    stables = list_offsets(cluster, dict.fromkeys(committed, LATEST), isolation_level=READ_COMMITTED) if committed else {}
    starts = list_offsets(cluster, dict.fromkeys(committed, EARLIEST)) if committed else {}
    behind: dict[TopicPartition, int] = {}
    rows = []
    for partition, found in committed.items():
        end, stable, start = ends[partition], stables[partition], starts[partition]
        if not (isinstance(end, OffsetAt) and isinstance(stable, OffsetAt) and isinstance(start, OffsetAt)):
            continue  # deleted, or without a leader: there is no end offset to compare with
        if found.offset < end.offset:
            behind[partition] = max(found.offset, start.offset)
        rows.append(
            {
                "group": group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": found.offset,
                "last_stable_offset": stable.offset,
                "log_end_offset": end.offset,
                "lag": max(0, end.offset - found.offset),
                "stable_lag": max(0, stable.offset - found.offset),
                "lag_seconds": 0.0,
            }
        )
    ages = _ages_s(cluster, behind)
    for row in rows:
        partition = TopicPartition(str(row["topic"]), int(str(row["partition"])))
        if partition in behind:
            row["lag_seconds"] = ages.get(partition)
    return rows


def _ages_s(cluster: Cluster, positions: dict[TopicPartition, int]) -> dict[TopicPartition, float | None]:
    """The age of the first record from each position on, 0 if only markers follow; partitions that cannot be read in time are left out."""
    import time

    from ottla.cli.moments import now_ms
    from ottla.client.blocking.consumer import Consumer

    ages: dict[TopicPartition, float | None] = {}
    if not positions:
        return ages
    deadline = time.monotonic() + min(5.0, cluster.timeout_s)
    with Consumer(cluster, partition_bytes_max=16 * 1024, max_wait_ms=100) as consumer:
        consumer.assign(positions)
        while len(ages) < len(positions) and time.monotonic() < deadline:
            for fetched in consumer.poll(0.5):
                record = next(fetched.records(), None)
                if record is not None:
                    ages.setdefault(fetched.partition, max(0.0, (now_ms() - record.timestamp) / 1000))
                elif fetched.next_offset >= fetched.high_watermark:
                    ages.setdefault(fetched.partition, 0.0)
    return ages


# delete, delete-offsets


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    add_yes(parser)


def _delete(args: argparse.Namespace) -> int:
    output = output_of(args)
    with connect(args) as cluster:
        names = chosen_groups(cluster, args)
        confirm(args, f"Delete {', '.join(names)} with all committed offsets?")
        failures = delete_groups(cluster, names)
    return report_deletion(output, names, failures)


def _delete_offsets_arguments(parser: argparse.ArgumentParser) -> None:
    add_group_options(parser)
    parser.add_argument("--topic", action="append", metavar="TOPIC[:P,...]", help="of these topics or partitions")
    parser.add_argument("--all-topics", action="store_true", help="of all topics that the group has committed")
    add_yes(parser)


def _delete_offsets(args: argparse.Namespace) -> int:
    from ottla.cli.groups.group_scope import scope_partitions

    output = output_of(args)
    if not args.topic and not args.all_topics:
        raise UsageError("give --topic TOPIC[:PARTITION,...] or --all-topics")
    rows = []
    with connect(args) as cluster:
        for name in chosen_groups(cluster, args):
            committed = list(group_admin.committed_offsets(cluster, name))
            partitions = scope_partitions(cluster, args.topic, args.all_topics, committed)
            if not partitions:
                raise Refused(f"group {name!r} has committed no offsets", "GROUP_ID_NOT_FOUND")
            confirm(args, f"Delete {counted(len(partitions), 'committed offset')} of {name}?")
            for partition, error in sorted(group_admin.delete_offsets(cluster, name, partitions).items()):
                status = "Successful" if error is None else error.code.name
                rows.append({"group": name, "topic": partition.topic, "partition": partition.partition, "status": status})
    columns: Columns = (("GROUP", "group"), ("TOPIC", "topic"), ("PARTITION", "partition"), ("STATUS", "status"))
    output.show("offsets", rows, columns)
    return 1 if any(row["status"] != "Successful" for row in rows) else 0


COMMANDS = {
    "list": Command("All groups.", _list_arguments, _list, may_watch=True),
    "describe": Command("Offsets, members or state of groups.", _describe_arguments, _describe, may_watch=True),
    "lag": Command("How far groups are behind, in records and seconds.", add_group_options, _lag, may_watch=True),
    "reset-offsets": reset_offsets.COMMAND,
    "delete": Command("Delete groups.", _delete_arguments, _delete),
    "delete-offsets": Command("Delete committed offsets.", _delete_offsets_arguments, _delete_offsets),
}
