"""What does OffsetFetch do: which offsets has a group, and which of them may be shown?

A fetch that asks for stable offsets gets UNSTABLE_OFFSET_COMMIT for those that an open transaction is about to move (KIP-447).
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups.answers import FetchedOffset, FetchedOffsets, FetchedTopic
from ottla.groups.commands import FetchOffsets
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.shard import GroupShard
from ottla.machine.contract import Decision, Reply
from ottla.machine.draft import answered


def refuse_fetch(code: ErrorCode) -> FetchedOffsets:
    return FetchedOffsets(error=code)


def fetch_offsets(shard: GroupShard, command: FetchOffsets, reply: Reply) -> Decision:
    """Answers `FetchedOffsets`."""
    try:
        _check_fetch(shard, command)
    except ApiError as failure:
        return answered(reply, refuse_fetch(failure.code), refuse_fetch)
    group_id, is_stable = command.group_id, command.require_stable
    topics: list[FetchedTopic] = []
    if command.topics is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in shard.offsets.keys_of(group_id) if is_stable else shard.offsets.of_group(group_id):
            by_topic.setdefault(topic, []).append(partition)
        for topic, partitions in by_topic.items():
            found = [_fetched(shard, group_id, topic, partition, is_stable) for partition in partitions]
            topics.append(FetchedTopic(topic, shard.topics.topic_id(topic) or ZERO_UUID, found))
    else:
        for asked in command.topics:
            found = [_fetched(shard, group_id, asked.topic, partition, is_stable) for partition in asked.partitions]
            topics.append(FetchedTopic(asked.topic, asked.topic_id, found))
    return answered(reply, FetchedOffsets(topics=topics), refuse_fetch)


def _check_fetch(shard: GroupShard, command: FetchOffsets) -> None:
    """A member of the consumer protocol names itself, so that it does not continue from where another member has taken over."""
    group = shard.groups.get(command.group_id)
    if type(group) is not ConsumerGroup or (command.member_id is None and command.member_epoch < 0):
        return
    if command.member_id not in group.facts:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    if command.member_epoch != group.position(command.member_id).epoch:
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH)


def _fetched(shard: GroupShard, group_id: str, topic: str, partition: int, is_stable: bool) -> FetchedOffset:
    if is_stable and shard.offsets.is_pending(group_id, topic, partition):
        return FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return FetchedOffset(partition, shard.offsets.get(group_id, topic, partition))
