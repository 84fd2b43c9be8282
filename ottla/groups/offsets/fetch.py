"""OffsetFetch: returns the offsets of a group.

With `require_stable`, an offset with a pending transactional commit is returned as UNSTABLE_OFFSET_COMMIT (KIP-447). An offset committed
for another topic id belongs to a deleted topic of the same name; it is not returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups.answers import FetchedOffset, FetchedOffsets
from ottla.groups.commands import FetchOffsets, TopicPartitions
from ottla.groups.modern.reconciling import ReconcilingGroup
from ottla.groups.offsets.store import CommittedOffset, OffsetKey
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered


def refuse_fetch(code: ErrorCode) -> FetchedOffsets:
    return FetchedOffsets(error=code)


def fetch_offsets(shard: GroupShard, command: FetchOffsets, reply: Reply) -> Decision:
    """Answers with `FetchedOffsets`."""
    try:
        _check_fetch(shard, command)
    except ApiError as failure:
        return answered(reply, refuse_fetch(failure.code), refuse_fetch)
    committed = shard.offsets.of_group(command.group_id)
    unstable = shard.offsets.pending_keys(command.group_id) if command.require_stable else ()
    topics = command.topics
    if topics is None:
        topics = _all_topics(shard, shard.offsets.keys_of(command.group_id) if unstable else committed)
    topic_id = shard.topics.topic_id
    offsets = [_offsets(committed, unstable, asked.topic, topic_id(asked.topic) or ZERO_UUID, asked.partitions) for asked in topics]
    return answered(reply, FetchedOffsets(ErrorCode.NONE, topics, offsets), refuse_fetch)


def _check_fetch(shard: GroupShard, command: FetchOffsets) -> None:
    """Raises `ApiError` if a request for a consumer or streams group names an unknown member, or another epoch than the member's. Otherwise
    a member could read offsets of partitions that another member took over.
    """
    group = shard.groups.get(command.group_id)
    if not isinstance(group, ReconcilingGroup) or (command.member_id is None and command.member_epoch < 0):
        return
    if command.member_id is None or command.member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if command.member_epoch != group.position(command.member_id).epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)


def _all_topics(shard: GroupShard, keys: Iterable[OffsetKey]) -> list[TopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in keys:
        by_topic.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic, partitions, shard.topics.topic_id(topic) or ZERO_UUID) for topic, partitions in by_topic.items()]


def _offsets(
    committed: Mapping[OffsetKey, CommittedOffset], unstable: Collection[OffsetKey], topic: str, topic_id: Uuid, partitions: Sequence[int]
) -> list[FetchedOffset]:
    found: list[FetchedOffset] = [committed.get((topic, partition)) for partition in partitions]
    for position, offset in enumerate(found):
        if type(offset) is CommittedOffset and offset.topic_id != topic_id and ZERO_UUID not in (offset.topic_id, topic_id):
            found[position] = None
    if not unstable:
        return found
    return [
        ErrorCode.UNSTABLE_OFFSET_COMMIT if (topic, partition) in unstable else offset
        for partition, offset in zip(partitions, found, strict=True)
    ]
