"""Administration of groups and their committed offsets, as conversations (`conversation.py`) on a `ClusterCore`.

Requests about a group are sent to its coordinator. Classic groups and groups of the consumer protocol (KIP-848) need different describe
requests; `describe_group` returns a `GroupDescription` for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.base.errors import ApiError, ErrorCode, WireError
from ottla.base.types import TopicPartition
from ottla.client.core.admin import check, checked, refusal
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition, partitions_in, topic_list
from ottla.client.errors import KafkaError, TransportError
from ottla.wire.apis import KEYS

T = TypeVar("T")

CONSUMER_GROUP_DESCRIBE, OFFSET_FETCH = KEYS["ConsumerGroupDescribe"], KEYS["OffsetFetch"]
GROUPS_A_REQUEST = 100
"""Groups in one OffsetFetch request. With 100 partitions each, a response has 10,000 offsets, about 400 kB."""
INACTIVE_STATES = frozenset({"Empty", "Dead"})


class ListedGroup(NamedTuple):
    """One line of a list of groups. The state is empty if the broker is older than ListGroups 4, and the type is `Classic` if it is older
    than ListGroups 5.
    """

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
    link = yield from cluster.retrying(lambda: cluster.coordinator_link(GROUP, group_id))
    if link.offers(CONSUMER_GROUP_DESCRIBE):
        described = yield from _describe_consumer_group(cluster, group_id)
        if described is not None:
            return described
    return (yield from _describe_classic_group(cluster, group_id))


def _describe_consumer_group(cluster: ClusterCore, group_id: str) -> Conversation[GroupDescription | None]:
    """Describes a group of the consumer protocol. Returns None for other groups."""
    from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest

    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
        return None
    check(group.error_code, group.error_message, f"group {group_id!r}")
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            partitions_in(member.assignment.topic_partitions),
            member.member_epoch,
            partitions_in(member.target_assignment.topic_partitions),
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


def _describe_classic_group(cluster: ClusterCore, group_id: str) -> Conversation[GroupDescription]:
    from ottla.wire.messages.describe_groups import DescribeGroupsRequest

    request = DescribeGroupsRequest(groups=[group_id])
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
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
    return partitions_in(assignment.assigned_partitions)


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


@operation
def committed_offsets_of(
    cluster: ClusterCore, groups: Iterable[ListedGroup]
) -> Conversation[dict[str, dict[TopicPartition, Committed] | KafkaError]]:
    """Returns the committed offsets of each group, or its error. `groups` is a result of `list_groups`. Version 8 of OffsetFetch asks for
    `GROUPS_A_REQUEST` groups at once (KIP-709); brokers with older versions are asked for one group after the other."""
    by_broker: dict[int, list[str]] = {}
    for group in groups:
        by_broker.setdefault(group.coordinator, []).append(group.group_id)
    results: dict[str, dict[TopicPartition, Committed] | KafkaError] = {}
    for broker, names in by_broker.items():
        version = (yield from cluster.link(broker)).version_of(OFFSET_FETCH)
        for start in range(0, len(names), GROUPS_A_REQUEST):
            some = names[start : start + GROUPS_A_REQUEST]
            if version >= 8:
                results.update((yield from _offsets_of_some(cluster, broker, some)))
            else:
                for name in some:
                    try:
                        results[name] = yield from committed_offsets(cluster, name)
                    except KafkaError as error:
                        results[name] = error
    return results


def _offsets_of_some(
    cluster: ClusterCore, broker: int, names: Sequence[str]
) -> Conversation[dict[str, dict[TopicPartition, Committed] | KafkaError]]:
    from ottla.wire.messages import offset_fetch as wire

    request = wire.OffsetFetchRequest(groups=[wire.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
    answer = yield from cluster.ask_broker(broker, request)
    return {
        found.group_id: refusal(found.error_code, None, f"offsets of group {found.group_id!r}") or _read_offsets(found)
        for found in answer.groups
    }


def _committed_offsets(
    cluster: ClusterCore, group_id: str, wanted: Sequence[TopicPartition] | None, require_stable: bool
) -> Conversation[dict[TopicPartition, Committed]]:
    link = yield from cluster.link((yield from cluster.coordinator(GROUP, group_id)))
    request = _offset_fetch_request(link.version_of(OFFSET_FETCH), group_id, wanted, require_stable)
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request)
    found: Any = answer.groups[0] if answer.groups else answer
    check(found.error_code, None, f"offsets of group {group_id!r}")
    for partition, result in each_partition(found.topics):
        check(result.error_code, None, f"offset of group {group_id!r} in {partition}")
    return _read_offsets(found)


def _read_offsets(found: Any) -> dict[TopicPartition, Committed]:
    """Returns the committed offsets of a group in a response. Omits partitions without an offset or with an error."""
    offsets = {
        partition: Committed(result.committed_offset, result.committed_leader_epoch, result.metadata or "")
        for partition, result in each_partition(found.topics)
        if result.committed_offset >= 0
    }
    return dict(sorted(offsets.items()))


def _offset_fetch_request(version: int, group_id: str, wanted: Sequence[TopicPartition] | None, require_stable: bool) -> Any:
    from ottla.wire.messages import offset_fetch as wire

    topic_class: Any = wire.OffsetFetchRequestTopic if version < 8 else wire.OffsetFetchRequestTopics
    topics: Any = None if wanted is None else topic_list(topic_class, {one: one.partition for one in sorted(wanted)})
    if version < 8:
        return wire.OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable and version >= 7)
    return wire.OffsetFetchRequest(groups=[wire.OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=require_stable)


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
    answer = yield from cluster.ask_coordinator(GROUP, group_id, request)
    return {
        partition: refusal(result.error_code, None, f"offset of group {group_id!r} in {partition}")
        for partition, result in each_partition(answer.topics)
    }


def offsets_by_topic(
    offsets: Mapping[TopicPartition, int | Committed], topic_class: Callable[..., T], partition_class: Callable[..., Any]
) -> list[T]:
    """Returns offsets as the topics of an OffsetCommit or TxnOffsetCommit request, which have the same fields."""
    found = {}
    for partition, offset in sorted(offsets.items()):
        at, epoch, metadata = offset if isinstance(offset, Committed) else Committed(offset)
        found[partition] = partition_class(
            partition_index=partition.partition, committed_offset=at, committed_leader_epoch=epoch, committed_metadata=metadata
        )
    return topic_list(topic_class, found)


@operation
def remove_member(
    cluster: ClusterCore, group_id: str, member_id: str, instance_id: str | None = None, *, reason: str = ""
) -> Conversation[None]:
    """Removes a member from a group, which then rebalances. A member that still runs joins again. A static member is named by its instance
    id alone. Raises `KafkaError`, with UNKNOWN_MEMBER_ID for a member that has left."""
    from ottla.wire.messages import leave_group as wire

    leaving = wire.MemberIdentity(member_id=member_id if instance_id is None else "", group_instance_id=instance_id, reason=reason or None)
    answer = yield from checked(
        cluster.ask_coordinator(GROUP, group_id, wire.LeaveGroupRequest(group_id=group_id, members=[leaving])), f"group {group_id!r}"
    )
    (result,) = answer.members
    check(result.error_code, None, f"member {instance_id or member_id!r} of group {group_id!r}")


@operation
def delete_group(cluster: ClusterCore, group_id: str) -> Conversation[None]:
    """Deletes a group and its committed offsets. The broker refuses this while the group has members."""
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    request = DeleteGroupsRequest(groups_names=[group_id])
    lost = list[TransportError]()
    (result,) = (yield from cluster.ask_coordinator(GROUP, group_id, request, lost=lost)).results
    if lost and result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # an earlier request without an answer has deleted the group
        return
    check(result.error_code, result.error_message, f"group {group_id!r}")


@operation
def delete_offsets(
    cluster: ClusterCore, group_id: str, partitions: Iterable[TopicPartition]
) -> Conversation[dict[TopicPartition, KafkaError | None]]:
    """Deletes a group's committed offsets of some partitions. The broker refuses this for topics that the group subscribes to."""
    from ottla.wire.messages import offset_delete as wire

    asked = {one: wire.OffsetDeleteRequestPartition(partition_index=one.partition) for one in sorted(partitions)}
    request = wire.OffsetDeleteRequest(group_id=group_id, topics=topic_list(wire.OffsetDeleteRequestTopic, asked))
    answer = yield from checked(cluster.ask_coordinator(GROUP, group_id, request), f"group {group_id!r}")
    return {
        partition: refusal(result.error_code, None, f"group {group_id!r}, {partition}")
        for partition, result in each_partition(answer.topics)
    }
