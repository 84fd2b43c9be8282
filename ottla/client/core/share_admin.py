"""Administration of share groups (KIP-932): their members, and the start offsets of their partitions.

The start of a share partition is its first offset that is not completed (acknowledged or archived). Records before it are never delivered
again. The lag is the broker's count of records that are not completed, acquired or not (KIP-1226); older brokers do not send it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin import check, checked, refusal
from ottla.client.core.cluster import GROUP, ClusterCore
from ottla.client.core.conversation import Conversation
from ottla.client.core.operation import operation
from ottla.client.core.topic_lists import each_partition, partitions_in, topic_list
from ottla.client.errors import KafkaError, refused

TYPE = "share"


class ShareMemberDescription(NamedTuple):
    """One member and the partitions that it may fetch from."""

    member_id: str
    client_id: str
    host: str
    epoch: int
    rack: str | None
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


class ShareGroupDescription(NamedTuple):
    """The coordinator's view of a share group."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    coordinator: int
    members: tuple[ShareMemberDescription, ...]


class ShareOffset(NamedTuple):
    """The start and lag of a share partition, or its error. A number is None if the group has not begun with the partition, or the broker
    does not send it.
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None
    error: KafkaError | None = None


@operation
def describe_share_group(cluster: ClusterCore, group_id: str) -> Conversation[ShareGroupDescription]:
    """Describes one group. Raises KafkaError GROUP_ID_NOT_FOUND if there is no share group with this id."""
    from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest

    request = ShareGroupDescribeRequest(group_ids=[group_id])
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
    check(group.error_code, group.error_message, f"share group {group_id!r}")
    if group.group_state == "Dead":
        raise refused(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {group_id!r} not found")
    members = tuple(_member(member) for member in group.members)
    return ShareGroupDescription(
        group_id,
        group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        (yield from cluster.coordinator(GROUP, group_id)),
        members,
    )


def _member(member: Any) -> ShareMemberDescription:
    return ShareMemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        member.rack_id,
        tuple(member.subscribed_topic_names),
        partitions_in(member.assignment.topic_partitions),
    )


@operation
def share_offsets(
    cluster: ClusterCore, group_id: str, partitions: Iterable[TopicPartition] | None = None
) -> Conversation[dict[TopicPartition, ShareOffset]]:
    """Returns the starts of a group's partitions (None: all partitions that the group has begun)."""
    from ottla.wire.messages import describe_share_group_offsets as wire

    topics = None
    if partitions is not None:
        topics = topic_list(wire.DescribeShareGroupOffsetsRequestTopic, {one: one.partition for one in sorted(partitions)})
    request = wire.DescribeShareGroupOffsetsRequest(groups=[wire.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)])
    (group,) = (yield from cluster.ask_coordinator(GROUP, group_id, request)).groups
    check(group.error_code, group.error_message, f"offsets of share group {group_id!r}")
    found = {}
    for partition, result in each_partition(group.topics):
        failed = refusal(result.error_code, result.error_message, f"share group {group_id!r} in {partition}")
        found[partition] = ShareOffset(_known(result.start_offset), _known(result.leader_epoch), _known(result.lag), failed)
    return dict(sorted(found.items()))


def _known(number: int) -> int | None:
    return None if number < 0 else number


@operation
def alter_share_offsets(
    cluster: ClusterCore, group_id: str, starts: Mapping[TopicPartition, int]
) -> Conversation[dict[TopicPartition, KafkaError | None]]:
    """Sets the starts of partitions. The broker refuses this while the group has members."""
    from ottla.wire.messages import alter_share_group_offsets as wire

    part_class = wire.AlterShareGroupOffsetsRequestPartition
    asked = {one: part_class(partition_index=one.partition, start_offset=start) for one, start in sorted(starts.items())}
    request = wire.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topic_list(wire.AlterShareGroupOffsetsRequestTopic, asked))
    answer = yield from checked(cluster.ask_coordinator(GROUP, group_id, request), f"share group {group_id!r}")
    return {
        partition: refusal(result.error_code, result.error_message, f"share group {group_id!r} in {partition}")
        for partition, result in each_partition(answer.responses)
    }


@operation
def delete_share_offsets(cluster: ClusterCore, group_id: str, topics: Sequence[str]) -> Conversation[dict[str, KafkaError | None]]:
    """Deletes a group's offsets of some topics. The broker refuses this while the group has members."""
    from ottla.wire.messages import delete_share_group_offsets as wire

    request = wire.DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[wire.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    )
    answer = yield from checked(cluster.ask_coordinator(GROUP, group_id, request), f"share group {group_id!r}")
    return {
        topic.topic_name: refusal(topic.error_code, topic.error_message, f"share group {group_id!r} in {topic.topic_name!r}")
        for topic in answer.responses
    }
