"""StreamsGroupDescribe: the epochs, topology and members of streams groups, with the current and target tasks of each member (KIP-1071).

Behaviour: a group that is unknown or of another type gets GROUP_ID_NOT_FOUND. If a group has a topic that the principal may not describe,
the whole group gets TOPIC_AUTHORIZATION_FAILED. Each group gets UNSUPPORTED_VERSION while the feature `streams.version` is at level 0, or
if `group.coordinator.rebalance.protocols` excludes the protocol.

Version notes: 1 has the name of the assignor and, if the request asks for it, the description of the topology that a member has sent
(KIP-1331). A description with a topic that the principal may not describe is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.groups.answers import DescribedEpochGroup, DescribedStreamsMember
from ottla.groups.describe import describe_streams_groups
from ottla.groups.streams.description import Description, Node
from ottla.groups.streams.group import ACTIVE, STANDBY, WARMUP, TaskKey, TaskRole
from ottla.groups.streams.topology import Configured, InternalTopic
from ottla.handlers.advertised_levels import require_streams_groups
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.groups.descriptions import GroupKind, describe_groups
from ottla.handlers.rights import permits
from ottla.security.acl import AclOperation, ResourceType
from ottla.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

NOT_STORED, NOT_SHOWN, AVAILABLE = 1, 2, 3
"""States of a requested description; 0 if it was not requested. Kafka calls 2 ERROR."""


def handle(broker: Broker, request: RequestContext, body: StreamsGroupDescribeRequest) -> Any:
    kind = STREAMS
    if body.include_topology_description:

        def may_describe(topic: str) -> bool:
            return permits(broker, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

        kind = STREAMS._replace(show_group=lambda group, shown: show_with_description(group, shown, may_describe))
    return describe_groups(broker, request, kind, body.group_ids, with_operations=body.include_authorized_operations)


def show_member(member: DescribedStreamsMember) -> Member:
    facts = member.facts
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=facts.client_host,
        topology_epoch=facts.topology_epoch,
        process_id=facts.process_id,
        user_endpoint=None if facts.endpoint is None else Endpoint(host=facts.endpoint[0], port=facts.endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in facts.tags],
        task_offsets=_offsets(member.offsets),
        task_end_offsets=_offsets(member.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(member.target),
    )


def _offsets(offsets: Mapping[tuple[str, int], int]) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=subtopology, partition=partition, offset=offset) for (subtopology, partition), offset in offsets.items()
    ]


def _assignment(tasks: Mapping[TaskKey, Sequence[int]]) -> Assignment:
    def of(role: TaskRole) -> list[TaskIds]:
        return [TaskIds(subtopology_id=key.subtopology, partitions=list(mine)) for key, mine in tasks.items() if key.role is role]

    return Assignment(active_tasks=of(ACTIVE), standby_tasks=of(STANDBY), warmup_tasks=of(WARMUP))


def show_group(group: DescribedEpochGroup, shown: DescribedGroup) -> None:
    if group.configured is not None:
        shown.topology = _topology(group.configured)


def show_with_description(group: DescribedEpochGroup, shown: DescribedGroup, may_describe: Callable[[str], bool]) -> None:
    """Adds the description of the topology. It also names topics that the group writes, so it is not shown without DESCRIBE on them."""
    show_group(group, shown)
    found = group.description
    if group.error:
        return
    if found is None:
        shown.topology_description_status = NOT_STORED
    elif not all(map(may_describe, dict.fromkeys(found.topics()))):
        shown.topology_description_status = NOT_SHOWN
    else:
        shown.topology_description_status = AVAILABLE
        shown.topology_description = _description(found)


def _description(found: Description) -> TopologyDescription:
    return TopologyDescription(
        subtopologies=[
            TopologyDescriptionSubtopology(subtopology_id=name, nodes=list(map(_node, nodes))) for name, nodes in found.subtopologies
        ],
        global_stores=[
            TopologyDescriptionGlobalStore(source=_node(source), processor=_node(processor)) for source, processor in found.global_stores
        ],
    )


def _node(node: Node) -> TopologyDescriptionNode:
    return TopologyDescriptionNode(
        name=node.name, node_type=node.kind, source_topics=list(node.sources), sink_topic=node.sink, stores=list(node.stores),
        successors=list(node.successors),
    )  # fmt: skip


def _topology(configured: Configured) -> Topology:
    return Topology(
        epoch=configured.topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.sources),
                repartition_sink_topics=list(part.repartition_sinks),
                state_changelog_topics=_topics(part.changelogs, {}, configured.tasks.get(part.subtopology_id, 0)),
                repartition_source_topics=_topics(part.repartition_sources, configured.repartition_counts, 0),
            )
            for part in configured.topology.subtopologies
        ],
    )


def _topics(topics: Iterable[InternalTopic], counts: Mapping[str, int], otherwise: int) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=counts.get(topic.name, topic.partitions or otherwise),
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in topics
    ]


STREAMS = GroupKind(
    response=StreamsGroupDescribeResponse,
    group=DescribedGroup,
    ask=describe_streams_groups,
    show_member=show_member,
    require_offered=require_streams_groups,
    show_group=show_group,
)
