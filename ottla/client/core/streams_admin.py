"""Administration of streams groups (KIP-1071): the topology, and the tasks of each member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.client.core.admin import check
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import refused

TYPE = "streams"
DESCRIPTION_ERROR = 2
Tasks = Mapping[str, Sequence[int]]
"""Partitions by subtopology."""


class AssignedTasks(NamedTuple):
    active: Tasks
    standby: Tasks
    warmup: Tasks

    def size(self) -> int:
        """Returns the number of tasks."""
        return sum([len(partitions) for tasks in self for partitions in tasks.values()])


class StreamsMemberDescription(NamedTuple):
    """One member: a thread of a process of the application."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int
    rack: str | None
    process_id: str
    topology_epoch: int
    is_classic: bool
    assignment: AssignedTasks
    target: AssignedTasks


class StreamsGroupDescription(NamedTuple):
    """The coordinator's view of a streams group."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: int
    members: tuple[StreamsMemberDescription, ...]
    topology_epoch: int | None
    source_topics: tuple[str, ...]
    repartition_topics: tuple[str, ...]
    changelog_topics: tuple[str, ...]


class TopologyNode(NamedTuple):
    """A source, processor or sink of an application. `subtopology` is None for the nodes of a global store."""

    subtopology: str | None
    name: str
    kind: int
    """1 for a source, 2 for a processor, 3 for a sink."""
    topics: tuple[str, ...]
    """The topics that a source reads, or the topic that a sink writes."""
    stores: tuple[str, ...]
    successors: tuple[str, ...]


@operation
def describe_streams_group(cluster: ClusterCore, group_id: str) -> Conversation[StreamsGroupDescription]:
    """Describes one group. Raises KafkaError GROUP_ID_NOT_FOUND if there is no streams group with this id."""
    from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

    request = StreamsGroupDescribeRequest(group_ids=[group_id])
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
    check(group.error_code, group.error_message, f"streams group {group_id!r}")
    if group.group_state == "Dead":
        raise refused(ErrorCode.GROUP_ID_NOT_FOUND, f"streams group {group_id!r} not found")
    parts = (group.topology.subtopologies or ()) if group.topology is not None else ()
    return StreamsGroupDescription(
        group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name or "",
        (yield from cluster.coordinator(GROUP, group_id)),
        tuple(map(_member, group.members)),
        None if group.topology is None else group.topology.epoch,
        tuple(sorted({topic for part in parts for topic in part.source_topics})),
        tuple(sorted({topic.name for part in parts for topic in part.repartition_source_topics})),
        tuple(sorted({topic.name for part in parts for topic in part.state_changelog_topics})),
    )


@operation
def describe_topology(cluster: ClusterCore, group_id: str) -> Conversation[tuple[TopologyNode, ...] | None]:
    """Returns the description of a group's topology (KIP-1331); None if the coordinator has none. Raises KafkaError GROUP_ID_NOT_FOUND if
    there is no streams group with this id, and UNKNOWN_SERVER_ERROR if the broker cannot show the description."""
    from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_topology_description=True)
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
    check(group.error_code, group.error_message, f"streams group {group_id!r}")
    if group.topology_description_status == DESCRIPTION_ERROR:
        raise refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker cannot show the topology of streams group {group_id!r}")
    described = group.topology_description
    if described is None:
        return None
    nodes = [_node(part.subtopology_id, node) for part in described.subtopologies for node in part.nodes]
    nodes += [_node(None, node) for store in described.global_stores for node in (store.source, store.processor)]
    return tuple(nodes)


def _node(subtopology: str | None, node: Any) -> TopologyNode:
    topics = node.source_topics if node.sink_topic is None else [node.sink_topic]
    return TopologyNode(subtopology, node.name, node.node_type, tuple(topics), tuple(node.stores), tuple(node.successors))


def _member(member: Any) -> StreamsMemberDescription:
    return StreamsMemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        member.rack_id,
        member.process_id,
        member.topology_epoch,
        member.is_classic,
        _tasks(member.assignment),
        _tasks(member.target_assignment),
    )


def _tasks(assignment: Any) -> AssignedTasks:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return AssignedTasks(*({task.subtopology_id: sorted(task.partitions) for task in tasks} for tasks in kinds))
