"""StreamsGroupHeartbeat: a member joins, remains in or quits a streams group (KIP-1071)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, i64, nested, string, u16


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = i32()
    replication_factor: int = i16()
    topic_configs: list[KeyValue] = array(KeyValue)


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


class Topology(Struct):
    epoch: int = i32()
    subtopologies: list[Subtopology] = array(Subtopology)


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(i32)


class Endpoint(Struct):
    host: str = string()
    port: int = u16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = i32()
    offset: int = i64()


class StreamsGroupHeartbeatRequest(Request):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = i32()
    endpoint_information_epoch: int = i32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = i32(default=-1)
    topology: Topology | None = nested(Topology, nullable=True, default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    process_id: str | None = string(nullable=True, default=None)
    user_endpoint: Endpoint | None = nested(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, nullable=True, default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, nullable=True, default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, nullable=True, default=None)
    shutdown_application: bool = boolean()


class Status(Struct):
    status_code: int = i8()
    status_detail: str = string()


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = nested(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str = string()
    member_epoch: int = i32()
    heartbeat_interval_ms: int = i32()
    acceptable_recovery_lag_legacy: int = i32(until=0)
    task_offset_interval_ms: int = i32()
    acceptable_recovery_lag: int = i64(since=1, default=-1, ignorable=True)
    status: list[Status] | None = array(Status, nullable=True)
    active_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, nullable=True, default=None)
    topology_description_required: bool = boolean(since=1)
    endpoint_information_epoch: int = i32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(EndpointToPartitions, nullable=True, default=None)
