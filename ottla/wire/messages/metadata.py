"""Metadata: the brokers of the cluster, the controller, and the leader and replicas of each partition."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid(since=10, ignorable=True)
    name: str | None = string(nullable_since=10)


class MetadataRequest(Request):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    node_id: int = i32()
    host: str = string()
    port: int = i32()
    rack: str | None = string(since=1, nullable=True, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = i16()
    partition_index: int = i32()
    leader_id: int = i32()
    leader_epoch: int = i32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = array(i32)
    isr_nodes: list[int] = array(i32)
    offline_replicas: list[int] = array(i32, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = i16()
    name: str | None = string(nullable_since=12)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = i32(since=8, default=-0x80000000)


class MetadataResponse(Response):
    throttle_time_ms: int = i32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=True, default=None, ignorable=True)
    controller_id: int = i32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = i32(since=8, until=10, default=-0x80000000)
    error_code: int = i16(since=13, ignorable=True)
