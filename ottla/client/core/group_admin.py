"""Administration of groups and their committed offsets, as conversations on a `ClusterCore`.

Requests about a group are sent to its coordinator. Classic groups and groups of the consumer protocol (KIP-848) need different describe
requests; `describe_group` returns a `GroupDescription` for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.base.errors import ApiError, ErrorCode, WireError, error_code
from ottla.base.types import TopicPartition
from ottla.client.core.admin import check, grouped, refusal
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.errors import KafkaError, refused

T = TypeVar("T")

CONSUMER_GROUP_DESCRIBE = 69
OFFSET_FETCH = 9
INACTIVE_STATES = frozenset({"Empty", "Dead"})


class ListedGroup(NamedTuple):
    """One line of a list of groups. The state is empty if the broker is too old to send it; the type is then `Classic`."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


class GroupMember(NamedTuple):
    """One member and its partitions. Only the consumer protocol has `epoch` and `target`."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


class GroupDescription(NamedTuple):
    """The coordinator's view of a group."""

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
    """A committed offset: the next offset to read, the leader epoch (-1: unknown), and the committer's metadata text."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@operation
def list_groups(cluster: ClusterCore, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> Conversation[list[ListedGroup]]:
    """Returns the groups of all brokers, sorted by name. The client applies the filters too, because old brokers do not know them."""
    from ottla.wire.messages.list_groups import ListGroupsRequest

    yield from cluster.refresh([])
    found: dict[str, ListedGroup] = {}
    for broker_id in sorted(cluster.metadata.brokers):
        connection = yield from cluster.link(broker_id)
        version = connection.version_of(ListGroupsRequest.API_KEY)
        request = ListGroupsRequest(
            states_filter=list(states) if version >= 4 else [],
            types_filter=list(types) if version >= 5 else [],
        )
        answer = yield from cluster.ask_broker(broker_id, request)
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


@operation
def describe_group(cluster: ClusterCore, group_id: str) -> Conversation[GroupDescription]:
    """Describes one group. An unknown group gets the state `Dead`, as in Kafka's classic answers, and is no error."""
    coordinator = yield from cluster.coordinator(GROUP, group_id)
    if (yield from cluster.link(coordinator)).offers(CONSUMER_GROUP_DESCRIBE):
        described = yield from _describe_consumer_group(cluster, group_id)
        if described is not None:
            return described
    return (yield from _describe_classic_group(cluster, group_id))


def _describe_consumer_group(cluster: ClusterCore, group_id: str) -> Conversation[GroupDescription | None]:
    """Describes a group of the consumer protocol. Returns None for other groups."""
    from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.groups[0].error_code)
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
        (yield from cluster.coordinator(GROUP, group_id)),
        members,
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions))


def _describe_classic_group(cluster: ClusterCore, group_id: str) -> Conversation[GroupDescription]:
    from ottla.wire.messages.describe_groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group_id])
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.groups[0].error_code)
    group = answer.groups[0]
    coordinator = yield from cluster.coordinator(GROUP, group_id)
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
    """Decodes a classic member's assignment. Returns no partitions for malformed bytes."""
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


@operation
def committed_offsets(
    cluster: ClusterCore,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    timeout_s: float | None = None,
) -> Conversation[dict[TopicPartition, Committed]]:
    """Returns the committed offsets of a group, for some partitions or for all. Omits partitions without an offset.

    With `require_stable` it waits for open transactions that commit offsets (KIP-447), at most `timeout_s` (default: the cluster's
    timeout).
    """
    wanted = None if partitions is None else list(partitions)
    return (
        yield from cluster.retrying(
            lambda: _committed_offsets(cluster, group_id, wanted, require_stable),
            codes=frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT}),
            timeout_s=timeout_s,
        )
    )


def _committed_offsets(
    cluster: ClusterCore, group_id: str, wanted: Sequence[TopicPartition] | None, require_stable: bool
) -> Conversation[dict[TopicPartition, Committed]]:
    link = yield from cluster.link((yield from cluster.coordinator(GROUP, group_id)))
    request = _offset_fetch_request(link.version_of(OFFSET_FETCH), group_id, wanted, require_stable)
    answer = yield from cluster.ask_coordinator(
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


def _offset_fetch_request(version: int, group_id: str, wanted: Sequence[TopicPartition] | None, require_stable: bool) -> Any:
    from ottla.wire.messages import offset_fetch as wire

    topics = None if wanted is None else grouped(wanted).items()
    if version < 8:
        old = None if topics is None else [wire.OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics]
        return wire.OffsetFetchRequest(group_id=group_id, topics=old, require_stable=require_stable and version >= 7)
    new = None if topics is None else [wire.OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics]
    return wire.OffsetFetchRequest(groups=[wire.OffsetFetchRequestGroup(group_id=group_id, topics=new)], require_stable=require_stable)


@operation
def commit_offsets(
    cluster: ClusterCore,
    group_id: str,
    offsets: Mapping[TopicPartition, int | Committed],
    *,
    generation: int = -1,
    member_id: str = "",
) -> Conversation[dict[TopicPartition, KafkaError | None]]:
    """Commits offsets and returns None or the error for each. Without `generation` and `member_id` the group must be inactive."""
    from ottla.wire.messages import offset_commit as wire

    topics = offsets_by_topic(offsets, wire.OffsetCommitRequestTopic, wire.OffsetCommitRequestPartition)
    request = wire.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics)
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request, error_of=first_partition_code)
    return {
        TopicPartition(topic.name, result.partition_index): refusal(
            result.error_code, None, f"offset of group {group_id!r} in {topic.name}-{result.partition_index}"
        )
        for topic in answer.topics
        for result in topic.partitions
    }


def offsets_by_topic(
    offsets: Mapping[TopicPartition, int | Committed], topic_class: Callable[..., T], partition_class: Callable[..., Any]
) -> list[T]:
    """Returns offsets as the topics of an OffsetCommit or TxnOffsetCommit request, which have the same fields."""
    found: dict[str, list[Any]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        at, leader_epoch, metadata = offset if isinstance(offset, Committed) else Committed(offset)
        found.setdefault(topic, []).append(
            partition_class(partition_index=number, committed_offset=at, committed_leader_epoch=leader_epoch, committed_metadata=metadata)
        )
    return [topic_class(name=topic, partitions=partitions) for topic, partitions in found.items()]


def first_partition_code(answer: Any) -> int:
    """Returns the first error code among the partitions of an answer, 0 if there is none."""
    return next((result.error_code for topic in answer.topics for result in topic.partitions if result.error_code), 0)


@operation
def delete_group(cluster: ClusterCore, group_id: str) -> Conversation[None]:
    """Deletes a group and its committed offsets. The broker refuses this while the group has members."""
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group_id])
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.results[0].error_code)
    check(answer.results[0].error_code, answer.results[0].error_message, f"group {group_id!r}")


@operation
def delete_offsets(
    cluster: ClusterCore, group_id: str, partitions: Iterable[TopicPartition]
) -> Conversation[dict[TopicPartition, KafkaError | None]]:
    """Deletes a group's committed offsets of some partitions. The broker refuses this for topics that the group subscribes to."""
    from ottla.wire.messages import offset_delete as wire

    topics = [
        wire.OffsetDeleteRequestTopic(
            name=topic, partitions=[wire.OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
        )
        for topic, numbers in grouped(partitions).items()
    ]
    request = wire.OffsetDeleteRequest(group_id=group_id, topics=topics)
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request, error_of=lambda found: found.error_code)
    check(answer.error_code, None, f"group {group_id!r}")
    results: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            code = error_code(result.error_code)
            results[partition] = None if not result.error_code else refused(code, f"group {group_id!r}, {partition}")
    return results
