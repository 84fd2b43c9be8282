"""CreateTopics: creates topics, by number of partitions or by an explicit assignment."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = i32()
    broker_ids: list[int] = array(i32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable=True)


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = i32()
    replication_factor: int = i16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = i32(default=60_000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    name: str = string(since=5)
    value: str | None = string(since=5, nullable=True)
    read_only: bool = boolean(since=5)
    config_source: int = i8(since=5, default=-1, ignorable=True)
    is_sensitive: bool = boolean(since=5)


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid(since=7, ignorable=True)
    error_code: int = i16()
    error_message: str | None = string(nullable=True, ignorable=True)
    topic_config_error_code: int = i16(since=5, tag=0, ignorable=True)
    num_partitions: int = i32(since=5, default=-1, ignorable=True)
    replication_factor: int = i16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable=True, ignorable=True)


class CreateTopicsResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
