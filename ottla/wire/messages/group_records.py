"""Records of `__consumer_offsets`: committed offsets, classic groups, and consumer groups with server-side assignment."""

from __future__ import annotations

from ottla.wire.schema import RecordKey, RecordValue, Struct, Uuid, array, i8, i32, i64, nested, octets, string, uuid


class LegacyOffsetCommitKey(RecordKey, key=0, versions=(0, 0)):
    group: str = string()
    topic: str = string()
    partition: int = i32()


class LegacyOffsetCommitValue(RecordValue, key=0, versions=(0, 0)):
    offset: int = i64()
    metadata: str = string()
    commit_timestamp: int = i64()


class OffsetCommitKey(RecordKey, key=1, versions=(0, 0)):
    group: str = string()
    topic: str = string()
    partition: int = i32()


class OffsetCommitValue(RecordValue, key=1, versions=(0, 4), flexible=4):
    offset: int = i64()
    leader_epoch: int = i32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = i64()
    expire_timestamp: int = i64(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = uuid(since=4, tag=0, ignorable=True)


class GroupMetadataKey(RecordKey, key=2, versions=(0, 0)):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=True, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = i32(since=1, default=-1, ignorable=True)
    session_timeout: int = i32()
    subscription: bytes = octets()
    assignment: bytes = octets()


class GroupMetadataValue(RecordValue, key=2, versions=(0, 4), flexible=4):
    protocol_type: str = string()
    generation: int = i32()
    protocol: str | None = string(nullable=True)
    leader: str | None = string(nullable=True)
    current_state_timestamp: int = i64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(RecordKey, key=3, versions=(0, 0)):
    group_id: str = string()


class ConsumerGroupMetadataValue(RecordValue, key=3, versions=(0, 0), flexible=0):
    epoch: int = i32()
    metadata_hash: int = i64(tag=0)


class ConsumerGroupPartitionMetadataKey(RecordKey, key=4, versions=(0, 0)):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = i32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = i32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(RecordValue, key=4, versions=(0, 0), flexible=0):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(RecordKey, key=5, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = octets()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = i32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(RecordValue, key=5, versions=(0, 0), flexible=0):
    """`classic_member_metadata` must be None, not the default, for a member of the new protocol, as in Kafka."""

    instance_id: str | None = string(nullable=True)
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable=True)
    rebalance_timeout_ms: int = i32(default=-1)
    server_assignor: str | None = string(nullable=True)
    classic_member_metadata: ClassicMemberMetadata | None = nested(ClassicMemberMetadata, nullable=True, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(RecordKey, key=6, versions=(0, 0)):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, key=6, versions=(0, 0), flexible=0):
    assignment_epoch: int = i32()
    assignment_timestamp: int = i64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(RecordKey, key=7, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, key=7, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(RecordKey, key=8, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)
    assignment_epochs: list[int] | None = array(i32, nullable=True, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, key=8, versions=(0, 0), flexible=0):
    member_epoch: int = i32()
    previous_member_epoch: int = i32()
    state: int = i8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(RecordKey, key=16, versions=(0, 0)):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(RecordValue, key=16, versions=(0, 0), flexible=0):
    topics: list[str] = array(string)
    version: int = i64()
    timestamp: int = i64()
