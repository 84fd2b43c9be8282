"""Questions and orders about groups: which there are, who is in them, what they have committed.

A group is asked of its coordinator. Classic groups and groups of the newer protocol (KIP-848) are described by different requests; here
both become a `GroupDescription`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.types import TopicPartition
from ottla.client.admin import check, grouped, refusal
from ottla.client.cluster import GROUP, Cluster
from ottla.client.errors import KafkaError, error_code, refused

CONSUMER_GROUP_DESCRIBE = 69
INACTIVE_STATES = frozenset({"Empty", "Dead"})


class ListedGroup(NamedTuple):
    """One line of a list of groups; state and type are empty where the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


class GroupMember(NamedTuple):
    """One member and what it reads; `epoch` and `target` are of the newer protocol only."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


class GroupDescription(NamedTuple):
    """A group as its coordinator sees it."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


def list_groups(cluster: Cluster, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """All groups of all brokers, by name. The filters are the broker's where it has them, else ours."""
    from ottla.wire.messages.list_groups import ListGroupsRequest

    cluster.refresh([])
    found: dict[str, ListedGroup] = {}
    for broker_id in sorted(cluster.brokers):
        connection = cluster.connection(broker_id)
        version = connection.version_of(ListGroupsRequest.API_KEY)
        request = ListGroupsRequest(
            states_filter=list(states) if version >= 4 else [],
            types_filter=list(types) if version >= 5 else [],
        )
        answer = connection.request(request)
        check(answer.error_code, None, f"groups of broker {broker_id}")
        for group in answer.groups:
            kind = group.group_type or ("Classic" if version < 5 else "")
            found[group.group_id] = ListedGroup(group.group_id, group.protocol_type, group.group_state, kind, broker_id)
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    return [
        group
        for _, group in sorted(found.items())
        if (not wanted_states or group.state.lower() in wanted_states) and (not wanted_types or group.type.lower() in wanted_types)
    ]


def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """One group. A group that nobody knows is `Dead`, as for classic brokers, and not an error."""
    coordinator = cluster.coordinator(GROUP, group_id)
    if cluster.connection(coordinator).offers(CONSUMER_GROUP_DESCRIBE):
        described = _describe_consumer_group(cluster, group_id)
        if described is not None:
            return described
    return _describe_classic_group(cluster, group_id)


def _describe_consumer_group(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """A group of the newer protocol; None when it is not one."""
    from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    answer = cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.groups[0].error_code)
    group = answer.groups[0]
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
        return None
    check(group.error_code, group.error_message, f"group {group_id!r}")
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            member.member_epoch,
            _partitions_of(member.target_assignment),
        )
        for member in group.members
    )
    return GroupDescription(
        group_id,
        "Consumer",
        group.group_state,
        "consumer",
        group.assignor_name,
        cluster.coordinator(GROUP, group_id),
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions))


def _describe_classic_group(cluster: Cluster, group_id: str) -> GroupDescription:
    from ottla.wire.messages.describe_groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group_id])
    answer = cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.groups[0].error_code)
    group = answer.groups[0]
    coordinator = cluster.coordinator(GROUP, group_id)
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group_id, "Classic", "Dead", "", "", coordinator, ())
    check(group.error_code, group.error_message, f"group {group_id!r}")
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            read_assignment(member.member_assignment) if group.protocol_type == "consumer" else (),
        )
        for member in group.members
    )
    return GroupDescription(group_id, "Classic", group.group_state, group.protocol_type, group.protocol_data, coordinator, members)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a classic member's assignment; a member whose bytes are no such thing has none that we can show."""
    from ottla.wire.codec import decoder
    from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment

    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.VERSIONS[1])
    try:
        assignment, _ = decoder(ConsumerProtocolAssignment, version)(data, 2)
    except (WireError, ApiError):
        return ()
    return tuple(sorted(TopicPartition(topic.topic, number) for topic in assignment.assigned_partitions for number in topic.partitions))


# Committed offsets


def committed_offsets(cluster: Cluster, group_id: str, *, require_stable: bool = False) -> dict[TopicPartition, Committed]:
    """Everything that a group has committed."""
    from ottla.wire.messages import offset_fetch as wire

    coordinator = cluster.connection(cluster.coordinator(GROUP, group_id))
    version = coordinator.version_of(wire.OffsetFetchRequest.API_KEY)
    if version >= 8:
        request = wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=require_stable
        )
    else:
        request = wire.OffsetFetchRequest(group_id=group_id, topics=None, require_stable=require_stable and version >= 7)
    answer = cluster.ask_coordinator(
        GROUP, group_id, request, error_of=lambda found: found.groups[0].error_code if found.groups else found.error_code
    )
    found: Any = answer.groups[0] if answer.groups else answer
    check(found.error_code, None, f"offsets of group {group_id!r}")
    offsets: dict[TopicPartition, Committed] = {}
    for topic in found.topics:
        for result in topic.partitions:
            check(result.error_code, None, f"offset of group {group_id!r} in {topic.name}-{result.partition_index}")
            if result.committed_offset >= 0:
                offsets[TopicPartition(topic.name, result.partition_index)] = Committed(
                    result.committed_offset, result.committed_leader_epoch, result.metadata or ""
                )
    return dict(sorted(offsets.items()))


def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, KafkaError | None]:
    """Commits offsets; without generation and member as an operator does, which needs the group to be inactive."""
    from ottla.wire.messages import offset_commit as wire

    epochs = leader_epochs or {}
    topics = [
        wire.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                wire.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)],
                    committed_leader_epoch=epochs.get(TopicPartition(topic, number), -1),
                    committed_metadata="",
                )
                for number in numbers
            ],
        )
        for topic, numbers in grouped(offsets).items()
    ]
    request = wire.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics)

    def first_code(answer: Any) -> int:
        return next((result.error_code for topic in answer.topics for result in topic.partitions if result.error_code), 0)

    answer = cluster.ask_coordinator(GROUP, group_id, request, error_of=first_code)
    return {
        TopicPartition(topic.name, result.partition_index): refusal(
            result.error_code, None, f"offset of group {group_id!r} in {topic.name}-{result.partition_index}"
        )
        for topic in answer.topics
        for result in topic.partitions
    }


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Deletes a group and what it has committed; refused while it has members."""
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group_id])
    answer = cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.results[0].error_code)
    check(answer.results[0].error_code, answer.results[0].error_message, f"group {group_id!r}")


def delete_offsets(cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
    """Forgets what a group has committed for some partitions; refused for topics that it reads."""
    from ottla.wire.messages import offset_delete as wire

    topics = [
        wire.OffsetDeleteRequestTopic(
            name=topic, partitions=[wire.OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for topic, numbers in grouped(partitions).items()
    ]
    request = wire.OffsetDeleteRequest(group_id=group_id, topics=topics)
    answer = cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.error_code)
    check(answer.error_code, None, f"group {group_id!r}")
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            code = error_code(result.error_code)
            results[partition] = None if not result.error_code else refused(code, f"group {group_id!r}, {partition}")
    return results
