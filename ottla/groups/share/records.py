"""The records of a share group: encodes values and applies them.

`modern/records.py` has the records that consumer groups have too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.base.uuids import Uuid
from ottla.groups.modern.records import EpochChange, EpochSchema, fold_epochs, read_assignment, read_target
from ottla.groups.share.group import NO_STATE, ShareFacts, ShareGroup, SharePosition, StateTopics, TopicShare
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

STABLE_MEMBER = 0  # the only state of a share group's member


def _write_facts(facts: ShareFacts) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=facts.rack_id, client_id=facts.client_id, client_host=facts.client_host, subscribed_topic_names=list(facts.topics)
    )


def _read_facts(value: ShareGroupMemberMetadataValue) -> ShareFacts:
    return ShareFacts(value.rack_id, value.client_id, value.client_host, tuple(value.subscribed_topic_names))


def _read_position(value: ShareGroupCurrentMemberAssignmentValue) -> SharePosition:
    return SharePosition(value.member_epoch, value.previous_member_epoch, read_assignment(value.assigned_partitions))


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


def _write_position(position: SharePosition) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=position.epoch,
        previous_member_epoch=position.previous_epoch,
        state=STABLE_MEMBER,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in position.assigned.items()
        ],
    )


def _write_target(target: Mapping[Uuid, tuple[int, ...]]) -> ShareGroupTargetAssignmentMemberValue:
    topics = [TopicPartition(topic_id=topic_id, partitions=list(partitions)) for topic_id, partitions in target.items()]
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=topics)


SHARE_SCHEMA = EpochSchema(
    group_key=ShareGroupMetadataKey,
    group_value=ShareGroupMetadataValue,
    member_key=ShareGroupMemberMetadataKey,
    target_key=ShareGroupTargetAssignmentMetadataKey,
    target_value=ShareGroupTargetAssignmentMetadataValue,
    target_member_key=ShareGroupTargetAssignmentMemberKey,
    position_key=ShareGroupCurrentMemberAssignmentKey,
    write_facts=_write_facts,
    read_facts=_read_facts,
    write_target=_write_target,
    read_target=read_target,
    write_position=_write_position,
    read_position=_read_position,
)
SHARE_KEYS = (*SHARE_SCHEMA.keys(), ShareGroupStatePartitionMetadataKey)


def fold_share(group: ShareGroup, key: Any, value: Any) -> None:
    """Applies one record, a tombstone if `value` is None; the caller handles the tombstone of the group itself."""
    if not fold_epochs(SHARE_SCHEMA, group, key, value):
        group.set_state_topics(NO_STATE if value is None else _read_state_topics(value))


class ShareChange(EpochChange[ShareGroup, ShareFacts, SharePosition]):
    __slots__ = ()

    schema = SHARE_SCHEMA

    def put_state_topics(self, topics: StateTopics) -> None:
        value = ShareGroupStatePartitionMetadataValue(
            initializing_topics=_write_topics(topics.initializing),
            initialized_topics=_write_topics(topics.initialized),
            deleting_topics=[TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in topics.deleting.items()],
        )
        self.log(ShareGroupStatePartitionMetadataKey(group_id=self.group_id), value).set_state_topics(topics)

    def remove_rest(self) -> None:
        self.log(ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None)
