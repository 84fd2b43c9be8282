"""ShareAcknowledge: a member of a share group acknowledges records without fetching more (KIP-932)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, i64, nested, string, uuid


class AcknowledgementBatch(Struct):
    first_offset: int = i64()
    last_offset: int = i64()
    acknowledge_types: list[int] = array(i8)


class AcknowledgePartition(Struct):
    partition_index: int = i32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Request):
    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = i32()
    is_renew_ack: bool = boolean(since=2)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    leader_id: int = i32()
    leader_epoch: int = i32()


class PartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32()
    host: str = string()
    port: int = i32()
    rack: str | None = string(nullable=True, default=None)


class ShareAcknowledgeResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = i32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
