"""`ottla streams-group`: streams groups, the groups of Kafka Streams applications. Most commands are in `group_commands.py`.

The offsets of a streams group are the committed offsets of its source and repartition topics. A reset changes the offsets of the source
topics only. The application's state stores still contain the earlier records, unless the internal topics are deleted too.
"""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, command
from ottla.cli.groups.group_commands import Kind, add_changes, add_offset_deletion, add_views, wrong_kind
from ottla.cli.groups.group_options import GROUP_OPTIONS, STREAMS, chosen_groups
from ottla.cli.groups.reset_offsets import OffsetStore
from ottla.cli.output import write_error
from ottla.cli.render.ottla import Output, Row, column, json_only
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import group_admin, streams_admin
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, list_offsets
from ottla.client.core.streams_admin import StreamsGroupDescription, Tasks


class StreamsGroupRow(Row):
    """A streams group in `list`."""

    group: str
    state: str
    coordinator: int


class StreamsOffsetRow(Row):
    """A partition of a source or repartition topic."""

    group: str
    topic: str
    partition: int
    current_offset: int | None = None
    leader_epoch: int | None = column(wide=True, default=None)
    log_end_offset: int | None = None
    lag: int | None = None


class StreamsMemberRow(Row):
    group: str
    member_id: str
    process: str
    client_id: str
    host: str
    instance_id: str | None = json_only()
    rack: str | None = json_only()
    task_count: int = column("#TASKS")
    member_epoch: int = column(wide=True)
    topology_epoch: int = column(wide=True)
    active: list[str]
    standby: list[str]
    warmup: list[str] = column(wide=True)


class StreamsStateRow(Row):
    group: str
    coordinator: str = column("COORDINATOR (ID)")
    state: str
    epoch: int = column("GROUP-EPOCH", wide=True)
    assignment_epoch: int = column(wide=True)
    topology_epoch: int | None = column(wide=True)
    member_count: int = column("#MEMBERS")


class TopologyRow(Row):
    """A node of a topology. A node without a subtopology belongs to a global store."""

    group: str
    subtopology: str | None
    node: str
    type: str
    topics: list[str]
    stores: list[str]
    successors: list[str]


def describe(cluster: Cluster, name: str) -> StreamsGroupDescription:
    """Describes a streams group. Raises `ApiError` for an unknown name, with the nearest name, and for another kind of group."""
    try:
        return streams_admin.describe_streams_group(cluster, name)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise wrong_kind(cluster, name, streams_admin.TYPE)


def offset_rows(cluster: Cluster, group: StreamsGroupDescription, is_wide: bool = False) -> list[StreamsOffsetRow]:
    """Returns a row for each partition of the source and repartition topics. Without a committed offset, the lag counts all records."""
    there = set(cluster.topic_names())
    topics = [topic for topic in (*group.source_topics, *group.repartition_topics) if topic in there]
    partitions = [TopicPartition(topic, number) for topic in topics for number in cluster.partitions(topic)]
    committed = group_admin.committed_offsets(cluster, group.group_id)
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST)) if partitions else {}
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST)) if partitions else {}
    rows = []
    for partition in partitions:
        stored, end, start = committed.get(partition), ends[partition], starts[partition]
        row = StreamsOffsetRow(group.group_id, *partition, log_end_offset=end.offset if isinstance(end, OffsetAt) else None)
        if stored is not None:
            row.current_offset, row.leader_epoch = stored.offset, stored.leader_epoch if stored.leader_epoch >= 0 else None
        begin = stored.offset if stored is not None else start.offset if isinstance(start, OffsetAt) else None
        row.lag = None if row.log_end_offset is None or begin is None else max(0, row.log_end_offset - begin)
        rows.append(row)
    return rows


def _task_names(tasks: Tasks) -> list[str]:
    return [f"{subtopology}_{partition}" for subtopology in sorted(tasks) for partition in tasks[subtopology]]


def _member_row(group: str, member: Any) -> StreamsMemberRow:
    tasks = map(_task_names, member.assignment)
    who = (member.member_id, member.process_id, member.client_id, member.host, member.instance_id, member.rack)
    return StreamsMemberRow(group, *who, member.assignment.size(), member.epoch, member.topology_epoch, *tasks)


def _state_of(cluster: Cluster, name: str) -> str:
    return describe(cluster, name).state


def source_offsets(cluster: Cluster, name: str) -> dict[TopicPartition, int | None]:
    """Returns the committed offset of each partition of the source topics; None for a partition without one."""
    group, there = describe(cluster, name), set(cluster.topic_names())
    committed = group_admin.committed_offsets(cluster, name)
    partitions = [
        TopicPartition(topic, number) for topic in group.source_topics if topic in there for number in cluster.partitions(topic)
    ]
    return {partition: committed[partition].offset if partition in committed else None for partition in partitions}


KIND = Kind(
    noun="streams group",
    states=("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead"),
    types=(streams_admin.TYPE,),
    offsets=OffsetStore(STREAMS, _state_of, source_offsets, group_admin.commit_offsets),
    list_row=lambda found: StreamsGroupRow(found.group_id, found.state, found.coordinator),
    describe=describe,
    remark=lambda group: "" if group.members else f"Streams group '{group.group_id}' has no active members.",
    offset_rows=offset_rows,
    member_row=_member_row,
    state_row=lambda group, where: StreamsStateRow(
        group.group_id, where, group.state, group.epoch, group.assignment_epoch, group.topology_epoch, len(group.members)
    ),
    summary=lambda group: {
        "type": "Streams",
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology_epoch": group.topology_epoch,
        "source_topics": list(group.source_topics),
        "repartition_topics": list(group.repartition_topics),
        "changelog_topics": list(group.changelog_topics),
    },
    offset_class=StreamsOffsetRow,
    member_class=StreamsMemberRow,
    state_class=StreamsStateRow,
    list_class=StreamsGroupRow,
    views=("committed offsets and lag (the default)", "more columns"),
    shown=lambda _, rows: rows,
    is_checked=True,
    possessions="all committed offsets",
)

NODE_TYPES = {1: "source", 2: "processor", 3: "sink"}


@command("streams-group topology", "Sources, processors, stores and sinks of the applications of streams groups.", *GROUP_OPTIONS)
def topology(args: Args, cluster: Cluster, output: Output) -> int:
    """Prints the nodes of each group. Returns 1 if a group has no description."""
    rows, is_whole = [], True
    for name in chosen_groups(cluster, args, STREAMS):
        describe(cluster, name)
        nodes = streams_admin.describe_topology(cluster, name)
        if nodes is None:
            is_whole = False
            write_error(f"no member of streams group {name!r} has described its topology; Kafka Streams 4.4 and later does\n")
        rows += [
            TopologyRow(name, node.subtopology, node.name, NODE_TYPES.get(node.kind, str(node.kind)), *map(list, node[3:]))
            for node in nodes or ()
        ]
    output.rows("nodes", TopologyRow, rows)
    return 0 if is_whole else 1


add_views(KIND)
add_changes(KIND)
add_offset_deletion(KIND)
