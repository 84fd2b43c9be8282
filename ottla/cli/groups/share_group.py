"""`ottla share-group`: share groups. Most commands are in `group_commands.py`.

A share group has no committed offset in a partition. START-OFFSET is the offset of the first record that is neither acknowledged nor
archived. LAG is the broker's count of such records from that offset on. A reset changes the start offset.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import YES, Args, UsageError, command, confirm, option
from ottla.cli.groups.group_commands import Kind, add_changes, add_views, wrong_kind
from ottla.cli.groups.group_options import GROUP_OPTIONS, SHARES, chosen_groups
from ottla.cli.groups.reset_offsets import OffsetStore
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import group_admin, share_admin
from ottla.client.core.share_admin import ShareGroupDescription


class ListedRow(Row):
    """A share group in `list`."""

    group: str
    state: str
    coordinator: int


class StartOffsetRow(Row):
    """A partition that the group has begun. A number is None if the broker does not send it."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None = column(wide=True)
    start_offset: int | None
    lag: int | None


class ShareMemberRow(Row):
    group: str
    consumer_id: str
    host: str
    client_id: str
    rack: str | None = json_only()
    partition_count: int = column("#PARTITIONS")
    member_epoch: int = column(wide=True)
    assignment: list[str]


class ShareStateRow(Row):
    group: str
    coordinator: str = column("COORDINATOR (ID)")
    state: str
    epoch: int = column("GROUP-EPOCH", wide=True)
    assignment_epoch: int = column(wide=True)
    member_count: int = column("#MEMBERS")


class TopicDeletionRow(Row):
    group: str
    topic: str
    status: str


def describe(cluster: Cluster, name: str) -> ShareGroupDescription:
    """Describes a share group. Raises `ApiError` for an unknown name, with the nearest name, and for another kind of group."""
    try:
        return share_admin.describe_share_group(cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise wrong_kind(cluster, name, share_admin.TYPE)


def offset_rows(cluster: Cluster, group: ShareGroupDescription, is_wide: bool = False) -> list[StartOffsetRow]:
    """Returns a row for each partition that the group has begun. Raises the first error of a partition."""
    rows = []
    for partition, found in share_admin.share_offsets(cluster, group.group_id).items():
        if found.error is not None:
            raise found.error
        epoch = None if found.start_offset is None else found.leader_epoch
        rows.append(StartOffsetRow(group.group_id, *partition, epoch, found.start_offset, found.lag))
    return rows


def _member_row(group: str, member: Any) -> ShareMemberRow:
    assignment = [str(partition) for partition in member.assignment]
    who = (member.member_id, member.host, member.client_id, member.rack)
    return ShareMemberRow(group, *who, len(assignment), member.epoch, assignment)


def state_of(cluster: Cluster, name: str) -> str:
    """Returns the state of a share group. Returns "" for an unknown group, because a reset creates the group. Raises `ApiError` for a group
    of another kind."""
    try:
        return share_admin.describe_share_group(cluster, name).state
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    if any(group.group_id == name and group.type.lower() != share_admin.TYPE for group in group_admin.list_groups(cluster)):
        describe(cluster, name)
    return ""


def _starts(cluster: Cluster, name: str) -> dict[TopicPartition, int | None]:
    """Returns the start offset of each partition that the group has begun; None if the broker does not know it. Empty for an unknown
    group."""
    if not state_of(cluster, name):
        return {}
    return {partition: found.start_offset for partition, found in share_admin.share_offsets(cluster, name).items()}


KIND = Kind(
    noun="share group",
    states=("Empty", "Stable", "Dead"),
    types=(share_admin.TYPE,),
    offsets=OffsetStore(SHARES, state_of, _starts, share_admin.alter_share_offsets),
    list_row=lambda found: ListedRow(found.group_id, found.state, found.coordinator),
    describe=describe,
    remark=lambda group: "" if group.members else f"Share group '{group.group_id}' has no active members.",
    offset_rows=offset_rows,
    member_row=_member_row,
    state_row=lambda group, where: ShareStateRow(
        group.group_id, where, group.state, group.epoch, group.assignment_epoch, len(group.members)
    ),
    summary=lambda group: {"type": "Share", "epoch": group.epoch, "assignment_epoch": group.assignment_epoch},
    offset_class=StartOffsetRow,
    member_class=ShareMemberRow,
    state_class=ShareStateRow,
    list_class=ListedRow,
    views=("start offsets and lag (the default)", "more columns"),
    shown=lambda _, rows: rows,
    is_checked=True,
    possessions="the state of their records",
)

add_views(KIND)
add_changes(KIND)


@command(
    "share-group delete-offsets",
    "Delete the offsets of share groups in some topics.",
    *GROUP_OPTIONS,
    option("--topic", action="append", metavar="TOPIC", help="delete the group's offsets of this topic; repeatable"),
    YES,
)
def _delete_offsets(args: Args, cluster: Cluster, output: Output) -> int:
    if not args.topic:
        raise UsageError("give --topic TOPIC, repeatable")
    topics = list(dict.fromkeys(args.topic))
    rows = []
    for name in chosen_groups(cluster, args, SHARES):
        describe(cluster, name)
        confirm(args, f"Delete the offsets of {name} in {', '.join(topics)}?")
        for topic, error in sorted(share_admin.delete_share_offsets(cluster, name, topics).items()):
            rows.append(TopicDeletionRow(name, topic, "Successful" if error is None else error.code.name))
    output.rows("topics", TopicDeletionRow, rows)
    return 1 if any(row.status != "Successful" for row in rows) else 0
