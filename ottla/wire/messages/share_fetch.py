"""ShareFetch: a member of a share group acquires records, and acknowledges earlier ones (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import Records, Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, i64, nested, records, string, uuid


class AcknowledgementBatch(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    acknowledge_types: list[int] = array(i8)


class FetchPartition(Struct):
    partition_index: int = i32()
    partition_max_bytes: int = i32(until=0)
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(i32)


class ShareFetchRequest(Request):
    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = i32()
    max_wait_ms: int = i32()
    min_bytes: int = i32()
    max_bytes: int = i32(default=0x7FFFFFFF)
    max_records: int = i32()
    batch_size: int = i32()
    share_acquire_mode: int = i8(since=2, ignorable=True)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    leader_id: int = i32()
    leader_epoch: int = i32()


class AcquiredRecords(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    delivery_count: int = i16()


class PartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    acknowledge_error_code: int = i16()
    acknowledge_error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Records = records(default=b"")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32()
    host: str = string()
    port: int = i32()
    rack: str | None = string(nullable=True, default=None)


class ShareFetchResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = i32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
