"""UpdateMetadata: the controller sends a broker the topics, partitions and brokers for its answers to Metadata requests.

The tagged fields from 20000 on are Ottla's. Only controllers of Ottla send them.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, i64, string, uuid


class UpdateMetadataPartitionState(Struct):
    topic_name: str = string(until=4, ignorable=True)
    partition_index: int = i32()
    controller_epoch: int = i32()
    leader: int = i32()
    leader_epoch: int = i32()
    isr: list[int] = array(i32)
    zk_version: int = i32()
    replicas: list[int] = array(i32)
    offline_replicas: list[int] = array(i32, since=4, ignorable=True)
    adding_replicas: list[int] = array(i32, since=8, tag=20000, ignorable=True)
    removing_replicas: list[int] = array(i32, since=8, tag=20001, ignorable=True)
    eligible_replicas: list[int] = array(i32, since=8, tag=20002, ignorable=True)
    last_leader: int = i32(since=8, tag=20003, default=-1, ignorable=True)
    loss_epoch: int = i32(since=8, tag=20004, default=-1, ignorable=True)


class UpdateMetadataConfig(Struct):
    name: str = string()
    value: str = string()


class UpdateMetadataTopicState(Struct):
    topic_name: str = string(since=5)
    topic_id: Uuid = uuid(since=7, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, since=5)
    configs: list[UpdateMetadataConfig] = array(UpdateMetadataConfig, since=8, tag=20000, ignorable=True)
    version: int = i32(since=8, tag=20001, ignorable=True)


class UpdateMetadataEndpoint(Struct):
    port: int = i32(since=1)
    host: str = string(since=1)
    listener: str = string(since=3, ignorable=True)
    security_protocol: int = i16(since=1)


class UpdateMetadataBroker(Struct):
    id: int = i32()
    v0_host: str = string(until=0, ignorable=True)
    v0_port: int = i32(until=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, since=1, ignorable=True)
    rack: str | None = string(since=2, nullable=True, ignorable=True)
    epoch: int = i64(since=8, tag=20000, default=-1, ignorable=True)
    is_clean: bool = boolean(since=8, tag=20001, ignorable=True)


class UpdateMetadataRemovedTopic(Struct):
    name: str = string()
    topic_id: Uuid = uuid()


class UpdateMetadataRequest(Request):
    controller_id: int = i32()
    is_kraft_controller: bool = boolean(since=8)
    type: int = i8(since=8, tag=0)
    controller_epoch: int = i32()
    broker_epoch: int = i64(since=5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, until=4)
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, since=5)
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)
    sequence: int = i64(since=8, tag=20000, default=-1, ignorable=True)
    part: int = i32(since=8, tag=20001, ignorable=True)
    has_more_parts: bool = boolean(since=8, tag=20002, ignorable=True)
    removed: list[UpdateMetadataRemovedTopic] = array(UpdateMetadataRemovedTopic, since=8, tag=20003, ignorable=True)
    is_complete: bool = boolean(since=8, tag=20004, ignorable=True)


class UpdateMetadataResponse(Response):
    error_code: int = i16()
