"""Produce: a producer appends record batches to partitions. Version 13 names topics by id; versions below 3 are advertised but refused."""

from __future__ import annotations

from ottla.wire import schema
from ottla.wire.schema import Message, Records, Request, Response, Struct, Uuid, array, i16, i32, i64, nested, records, string, uuid

TOPIC_IDS_SINCE = 13


class PartitionProduceData(Struct):
    index: int = i32()
    records: Records | None = records(nullable=True)


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request):
    transactional_id: str | None = string(nullable=True, default=None)
    acks: int = i16()
    timeout_ms: int = i32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)

    @classmethod
    def usual(cls, version: int) -> list[Message]:
        """Returns the shape of records for one partition, without a transaction."""
        name = "topic" if version < TOPIC_IDS_SINCE else ""
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(records=b"records")])
        return [cls(topic_data=[data])] if schema.is_flexible(cls, version) else []


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = i32(since=8)
    batch_index_error_message: str | None = string(since=8, nullable=True, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = i32(since=10, default=-1)
    leader_epoch: int = i32(since=10, default=-1)


class PartitionProduceResponse(Struct):
    index: int = i32()
    error_code: int = i16()
    base_offset: int = i64()
    log_append_time_ms: int = i64(default=-1, ignorable=True)
    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = string(since=8, nullable=True, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = i32(since=10)
    host: str = string(since=10)
    port: int = i32(since=10)
    rack: str | None = string(since=10, nullable=True, default=None)


class ProduceResponse(Response):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = i32(ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
