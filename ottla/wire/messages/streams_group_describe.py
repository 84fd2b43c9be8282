"""StreamsGroupDescribe: the state, topology, members and tasks of streams groups (KIP-1071)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i8, i16, i32, i64, nested, string, u16


class StreamsGroupDescribeRequest(Request):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
    include_topology_description: bool = boolean(since=1)


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = i32()
    replication_factor: int = i16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    epoch: int = i32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable=True, default=None)


class Endpoint(Struct):
    host: str = string()
    port: int = u16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = i32()
    offset: int = i64()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(i32)


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    member_id: str = string()
    member_epoch: int = i32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = i32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nested(Endpoint, nullable=True, default=None)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = nested(Assignment)
    target_assignment: Assignment = nested(Assignment)
    is_classic: bool = boolean()


class TopologyDescriptionNode(Struct):
    name: str = string(since=1)
    node_type: int = i8(since=1)
    source_topics: list[str] = array(string, since=1)
    sink_topic: str | None = string(since=1, nullable=True, default=None)
    stores: list[str] = array(string, since=1)
    successors: list[str] = array(string, since=1)


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string(since=1)
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, since=1)


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = nested(TopologyDescriptionNode, since=1)
    processor: TopologyDescriptionNode = nested(TopologyDescriptionNode, since=1)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, since=1)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, since=1)


class DescribedGroup(Struct):
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = i32()
    assignment_epoch: int = i32()
    topology: Topology | None = nested(Topology, nullable=True, default=None)
    members: list[Member] = array(Member)
    authorized_operations: int = i32(default=-0x80000000)
    topology_description: TopologyDescription | None = nested(TopologyDescription, since=1, nullable=True, default=None)
    topology_description_status: int = i8(since=1)
    assignor_name: str | None = string(since=1, nullable=True, default=None, ignorable=True)


class StreamsGroupDescribeResponse(Response):
    throttle_time_ms: int = i32()
    groups: list[DescribedGroup] = array(DescribedGroup)
