"""How do the values of a share group look as records, and how are they folded back?

`ShareChange` is a decision under way: each step appends its record and is folded into a copy of the group at once, so the next step sees
it. `fold_share` does the same with records that come from the log. Both end in the same `set_*` and `remove_*` of `ShareGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.uuids import Uuid
from ottla.groups import records
from ottla.groups.consumer.assignors import Assignment
from ottla.groups.share.group import FIRST_EPOCH, NO_STATE, ShareFacts, ShareGroup, SharePosition, StateTopics, TopicShare
from ottla.machine.contract import LogRecord
from ottla.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

SHARE_KEYS = (
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)

STABLE_MEMBER = 0  # the only state of a share group's member


def fold_share(group: ShareGroup, key: Any, value: Any) -> None:
    """Folds one record, a tombstone if `value` is None; the tombstone of the group itself is the caller's."""
    if isinstance(key, ShareGroupMetadataKey):
        group.set_epoch(value.epoch, value.metadata_hash)
    elif isinstance(key, ShareGroupMemberMetadataKey):
        group.remove_member(key.member_id) if value is None else group.set_member(key.member_id, _read_facts(value))
    elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
        if value is None:
            group.set_target_epoch(FIRST_EPOCH, 0)
        else:
            group.set_target_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
        if value is None:
            group.remove_target(key.member_id)
        else:
            group.set_target(key.member_id, _read_assignment(value.topic_partitions))
    elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
        group.remove_position(key.member_id) if value is None else group.set_position(key.member_id, _read_position(value))
    elif isinstance(key, ShareGroupStatePartitionMetadataKey):
        group.set_state_topics(NO_STATE if value is None else _read_state_topics(value))


class ShareChange:
    """Records in the making, and the group as it will be when they are logged: the group itself until the first step, then a copy."""

    __slots__ = ("_id", "group", "records")

    def __init__(self, group: ShareGroup) -> None:
        self.group = group
        self.records: list[LogRecord] = []
        self._id = group.group_id

    def _log(self, record: LogRecord) -> ShareGroup:
        if not self.records:
            self.group = self.group.copy()
        self.records.append(record)
        return self.group

    def put_member(self, member_id: str, facts: ShareFacts) -> None:
        key = ShareGroupMemberMetadataKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, _write_facts(facts))).set_member(member_id, facts)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        self._log(records.consumer_record(ShareGroupMetadataKey(group_id=self._id), value)).set_epoch(epoch, metadata_hash)

    def raise_epoch(self) -> None:
        """The next heartbeat of anybody makes a new target."""
        self.put_epoch(self.group.epoch + 1, self.group.metadata_hash)

    def put_target_epoch(self, epoch: int, now_ms: int) -> None:
        value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        key = ShareGroupTargetAssignmentMetadataKey(group_id=self._id)
        self._log(records.consumer_record(key, value)).set_target_epoch(epoch, now_ms)

    def put_target(self, member_id: str, target: Assignment) -> None:
        value = ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=topic_id, partitions=list(target[topic_id])) for topic_id in target]
        )
        key = ShareGroupTargetAssignmentMemberKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, value)).set_target(member_id, target)

    def put_position(self, member_id: str, position: SharePosition) -> None:
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=position.epoch,
            previous_member_epoch=position.previous_epoch,
            state=STABLE_MEMBER,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in position.assigned.items()
            ],
        )
        key = ShareGroupCurrentMemberAssignmentKey(group_id=self._id, member_id=member_id)
        self._log(records.consumer_record(key, value)).set_position(member_id, position)

    def put_state_topics(self, topics: StateTopics) -> None:
        value = ShareGroupStatePartitionMetadataValue(
            initializing_topics=_write_topics(topics.initializing),
            initialized_topics=_write_topics(topics.initialized),
            deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in topics.deleting.items()],
        )
        self._log(records.consumer_record(ShareGroupStatePartitionMetadataKey(group_id=self._id), value)).set_state_topics(topics)

    def remove_member(self, member_id: str) -> None:
        """All that is known of a member."""
        for key in (
            ShareGroupCurrentMemberAssignmentKey(group_id=self._id, member_id=member_id),
            ShareGroupTargetAssignmentMemberKey(group_id=self._id, member_id=member_id),
            ShareGroupMemberMetadataKey(group_id=self._id, member_id=member_id),
        ):
            self._log(records.tombstone(key)).remove_position(member_id)
        self.group.remove_target(member_id)
        self.group.remove_member(member_id)

    def remove_group(self) -> None:
        """All that is known of the group; its own tombstone comes last."""
        for member_id in list(self.group.facts):
            self.remove_member(member_id)
        self._log(records.tombstone(ShareGroupStatePartitionMetadataKey(group_id=self._id)))
        self._log(records.tombstone(ShareGroupTargetAssignmentMetadataKey(group_id=self._id)))
        self._log(records.tombstone(ShareGroupMetadataKey(group_id=self._id)))


# Values


def _write_facts(facts: ShareFacts) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=facts.rack_id, client_id=facts.client_id, client_host=facts.client_host, subscribed_topic_names=list(facts.topics)
    )


def _read_facts(value: ShareGroupMemberMetadataValue) -> ShareFacts:
    return ShareFacts(value.rack_id, value.client_id, value.client_host, tuple(value.subscribed_topic_names))


def _read_assignment(topics: list[Any]) -> Assignment:
    return {bytes(topic.topic_id): tuple(topic.partitions) for topic in topics}


def _read_position(value: ShareGroupCurrentMemberAssignmentValue) -> SharePosition:
    return SharePosition(value.member_epoch, value.previous_member_epoch, _read_assignment(value.assigned_partitions))


def _write_topics(topics: Mapping[Uuid, TopicShare]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=share.name, partitions=list(share.partitions))
        for topic_id, share in topics.items()
    ]


def _read_topics(topics: list[TopicPartitionsInfo]) -> dict[Uuid, TopicShare]:
    return {bytes(topic.topic_id): TopicShare(topic.topic_name, tuple(sorted(topic.partitions))) for topic in topics}


def _read_state_topics(value: ShareGroupStatePartitionMetadataValue) -> StateTopics:
    return StateTopics(
        _read_topics(value.initializing_topics),
        _read_topics(value.initialized_topics),
        {bytes(topic.topic_id): topic.topic_name for topic in value.deleting_topics},
    )
