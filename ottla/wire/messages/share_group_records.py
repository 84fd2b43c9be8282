"""Records of `__consumer_offsets` that belong to share groups."""

from __future__ import annotations

from ottla.wire.schema import RecordKey, RecordValue, Struct, Uuid, array, i8, i32, i64, string, uuid


class ShareGroupMemberMetadataKey(RecordKey, key=10, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(RecordValue, key=10, versions=(0, 0), flexible=0):
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(RecordKey, key=11, versions=(0, 0)):
    group_id: str = string()


class ShareGroupMetadataValue(RecordValue, key=11, versions=(0, 0), flexible=0):
    epoch: int = i32()
    metadata_hash: int = i64()


class ShareGroupTargetAssignmentMetadataKey(RecordKey, key=12, versions=(0, 0)):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(RecordValue, key=12, versions=(0, 0), flexible=0):
    assignment_epoch: int = i32()
    assignment_timestamp: int = i64(tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(RecordKey, key=13, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)


class ShareGroupTargetAssignmentMemberValue(RecordValue, key=13, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(RecordKey, key=14, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)


class ShareGroupCurrentMemberAssignmentValue(RecordValue, key=14, versions=(0, 0), flexible=0):
    member_epoch: int = i32()
    previous_member_epoch: int = i32()
    state: int = i8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(RecordKey, key=15, versions=(0, 0)):
    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(i32)


class TopicInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(RecordValue, key=15, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
