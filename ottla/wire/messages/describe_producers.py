"""DescribeProducers: the producers in the state of a partition's replica, with their open transactions."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class TopicRequest(Struct):
    name: str = string()
    partition_indexes: list[int] = array(i32)


class DescribeProducersRequest(Request):
    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    producer_id: int = i64()
    producer_epoch: int = i32()
    last_sequence: int = i32(default=-1)
    last_timestamp: int = i64(default=-1)
    coordinator_epoch: int = i32()
    current_txn_start_offset: int = i64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response):
    throttle_time_ms: int = i32()
    topics: list[TopicResponse] = array(TopicResponse)
