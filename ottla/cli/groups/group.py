"""`ottla group`: consumer groups, and the list of groups of every kind. Most commands are in `group_commands.py`."""

from __future__ import annotations

import itertools
from typing import Any

from ottla.analysis.lag import group_lag
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, command
from ottla.cli.groups.group_commands import Kind, add_changes, add_offset_deletion, add_views, wrong_kind
from ottla.cli.groups.group_options import GROUP_OPTIONS, chosen_groups
from ottla.cli.groups.reset_offsets import COMMITTED
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import group_admin
from ottla.client.core.admin import LATEST, OffsetAt, list_offsets
from ottla.client.core.group_admin import GroupDescription, GroupMember


class GroupRow(Row):
    """A group of any kind in `list`."""

    group: str
    type: str
    protocol: str
    state: str
    coordinator: int


class OffsetRow(Row):
    """A partition that is committed or assigned, or a member without partitions."""

    group: str
    topic: str | None = None
    partition: int | None = None
    leader_epoch: int | None = column(wide=True, default=None)
    current_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    last_stable_offset: int | None = column(wide=True, default=None)
    stable_lag: int | None = column(wide=True, default=None)
    lag_seconds: float | None = column("SECONDS", wide=True, default=None)
    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


class MemberRow(Row):
    group: str
    consumer_id: str
    instance_id: str | None = json_only()
    host: str
    client_id: str
    partition_count: int = column("#PARTITIONS")
    assignment: list[str] = column(wide=True)


class GroupStateRow(Row):
    group: str
    coordinator: str = column("COORDINATOR (ID)")
    assignment_strategy: str
    state: str
    member_count: int = column("#MEMBERS")


class LagRow(Row):
    """The lag of a partition: to the high watermark, to the last stable offset, and in seconds."""

    group: str
    topic: str
    partition: int | None = None
    current_offset: int | None = None
    last_stable_offset: int | None = None
    log_end_offset: int | None = None
    lag: int = 0
    stable_lag: int = 0
    lag_seconds: float | None = column("SECONDS", default=None)


def describe(cluster: Cluster, name: str) -> GroupDescription:
    """Describes a consumer group. Raises `ApiError` for an unknown group: its state is Dead and it has no committed offsets."""
    group = group_admin.describe_group(cluster, name)
    if group.state != "Dead" or group_admin.committed_offsets(cluster, name):
        return group
    raise wrong_kind(cluster, name)


def _remark(group: GroupDescription) -> str:
    if group.state in group_admin.INACTIVE_STATES and group.state != "Dead":
        return f"Consumer group '{group.group_id}' has no active members."
    if group.state not in ("Stable", "Dead"):
        return f"Consumer group '{group.group_id}' is in state {group.state}: the assignment is about to change."
    return ""


def offset_rows(cluster: Cluster, group: GroupDescription, is_wide: bool = False) -> list[OffsetRow]:
    """Returns a row for each committed or assigned partition with its end offset, then a row for each member without partitions."""
    committed = group_admin.committed_offsets(cluster, group.group_id)
    owners: dict[TopicPartition, GroupMember] = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *owners})
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST)) if partitions else {}
    rows = []
    for partition in partitions:
        end, stored = ends[partition], committed.get(partition)
        row = OffsetRow(group.group_id, *partition, log_end_offset=end.offset if isinstance(end, OffsetAt) else None)
        if stored is not None:
            row.current_offset, row.leader_epoch = stored.offset, stored.leader_epoch if stored.leader_epoch >= 0 else None
            row.lag = None if row.log_end_offset is None else max(0, row.log_end_offset - stored.offset)
        rows.append(_with_member(row, owners.get(partition)))
    if is_wide:
        found = {(row.topic, row.partition): row for row in group_lag(cluster, group.group_id)}
        for row in rows:
            if (stable := found.get((row.topic or "", -1 if row.partition is None else row.partition))) is not None:
                row.last_stable_offset, row.stable_lag = stable.last_stable_offset, stable.stable_lag
                row.lag_seconds = stable.lag_seconds
    return rows + [_with_member(OffsetRow(group.group_id), member) for member in group.members if not member.assignment]


def _with_member(row: OffsetRow, member: GroupMember | None) -> OffsetRow:
    if member is not None:
        row.consumer_id, row.host, row.client_id = member.member_id, member.host, member.client_id
    return row


def _member_row(group: str, member: GroupMember) -> MemberRow:
    assignment = [str(partition) for partition in member.assignment]
    return MemberRow(group, member.member_id, member.instance_id, member.host, member.client_id, len(assignment), assignment)


def _with_totals(output: Output, rows: list[Any]) -> list[Any]:
    """Adds a row TOTAL with the summed lag after each group with several partitions. Only in the form `table`."""
    if output.form != "table":
        return rows
    found = []
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        own = list(members)
        found += own
        if sum(row.partition is not None for row in own) > 1:
            stable = [row.stable_lag for row in own if row.stable_lag is not None]
            lag = sum(row.lag or 0 for row in own)
            found.append(type(own[0])(group, "TOTAL", lag=lag, stable_lag=sum(stable) if stable else None))
    return found


KIND = Kind(
    noun="group",
    states=("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Assigning", "Reconciling", "NotReady"),
    types=("classic", "consumer", "share", "streams"),
    offsets=COMMITTED,
    list_row=lambda found: GroupRow(found.group_id, found.type.capitalize(), found.protocol_type, found.state, found.coordinator),
    describe=describe,
    remark=_remark,
    offset_rows=offset_rows,
    member_row=_member_row,
    state_row=lambda group, where: GroupStateRow(group.group_id, where, group.assignor, group.state, len(group.members)),
    summary=lambda group: {"type": group.type, "protocol_type": group.protocol_type},
    offset_class=OffsetRow,
    member_class=MemberRow,
    state_class=GroupStateRow,
    list_class=GroupRow,
    views=("committed offsets and lag (the default)", "more columns: leader epochs, and the lag of readers of committed data"),
    shown=_with_totals,
    is_checked=False,
    possessions="all committed offsets",
)

add_views(KIND)


@command("group lag", "How far groups are behind, in records and seconds.", *GROUP_OPTIONS, may_watch=True)
def _lag(args: Args, cluster: Cluster, output: Output) -> None:
    groups = [describe(cluster, name) for name in chosen_groups(cluster, args)]
    rows = [LagRow(*row) for group in groups for row in group_lag(cluster, group.group_id)]
    totals = {"lag": sum(row.lag for row in rows), "stable_lag": sum(row.stable_lag for row in rows)}
    output.rows("offsets", LagRow, _with_totals(output, rows), extra=totals)


add_changes(KIND)


add_offset_deletion(KIND)
