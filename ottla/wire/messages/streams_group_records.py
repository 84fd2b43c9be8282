"""Records of `__consumer_offsets` that belong to streams groups."""

from __future__ import annotations

from ottla.wire.schema import RecordKey, RecordValue, Struct, array, i8, i16, i32, i64, nested, string, u16


class StreamsGroupMetadataKey(RecordKey, key=17, versions=(0, 0)):
    group_id: str = string()


class LastAssignmentConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(RecordValue, key=17, versions=(0, 0), flexible=0):
    epoch: int = i32()
    metadata_hash: int = i64()
    validated_topology_epoch: int = i32(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(LastAssignmentConfig, nullable=True, tag=1)
    stored_description_topology_epoch: int = i32(tag=2, default=-1)
    failed_description_topology_epoch: int = i32(tag=3, default=-1)


class StreamsGroupMemberMetadataKey(RecordKey, key=19, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = u16()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(RecordValue, key=19, versions=(0, 0), flexible=0):
    instance_id: str | None = string(nullable=True)
    rack_id: str | None = string(nullable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = i32(default=-1)
    topology_epoch: int = i32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(RecordKey, key=20, versions=(0, 0)):
    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(RecordValue, key=20, versions=(0, 0), flexible=0):
    assignment_epoch: int = i32()
    assignment_timestamp: int = i64(tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(RecordKey, key=21, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(i32)


class StreamsGroupTargetAssignmentMemberValue(RecordValue, key=21, versions=(0, 0), flexible=0):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(RecordKey, key=22, versions=(0, 0)):
    group_id: str = string()
    member_id: str = string()


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(i32)
    assignment_epochs: list[int] | None = array(i32, nullable=True, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(RecordValue, key=22, versions=(0, 0), flexible=0):
    member_epoch: int = i32()
    previous_member_epoch: int = i32()
    state: int = i8()
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(StreamsGroupCurrentMemberAssignmentTaskIds)


class StreamsGroupTopologyKey(RecordKey, key=23, versions=(0, 0)):
    group_id: str = string()


class TopicConfig(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = i32()
    replication_factor: int = i16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Struct):
    source_topics: list[int] = array(i16)
    source_topic_regex: list[int] = array(i16)
    repartition_source_topics: list[int] = array(i16)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(RecordValue, key=23, versions=(0, 0), flexible=0):
    epoch: int = i32()
    subtopologies: list[Subtopology] = array(Subtopology)
