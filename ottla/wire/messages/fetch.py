"""Fetch: a consumer or a follower reads record batches. Version 13 names topics by id. From 7 on, a request of a session has only changes.

The tagged fields from 20000 on are Ottla's. `durable_end` is the synced end of the follower's log, if acknowledgements wait for the disk.
`came_damaged` means that the batch at `fetch_offset` was damaged when the follower received it, so the leader checks its own log.
"""

from __future__ import annotations

from ottla.wire.schema import (
    Message,
    Records,
    Request,
    Response,
    Struct,
    Uuid,
    array,
    boolean,
    i8,
    i16,
    i32,
    i64,
    nested,
    records,
    string,
    uuid,
)

TOPIC_IDS_SINCE = 13
WATERMARK_SINCE = 18


class ReplicaState(Struct):
    replica_id: int = i32(since=15, default=-1)
    replica_epoch: int = i64(since=15, default=-1)


class FetchPartition(Struct):
    partition: int = i32()
    current_leader_epoch: int = i32(since=9, default=-1, ignorable=True)
    fetch_offset: int = i64()
    last_fetched_epoch: int = i32(since=12, default=-1)
    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = i32()
    replica_directory_id: Uuid = uuid(since=17, tag=0, ignorable=True)
    high_watermark: int = i64(since=18, tag=1, default=0x7FFFFFFFFFFFFFFF, ignorable=True)
    durable_end: int = i64(since=12, tag=20000, default=-1, ignorable=True)
    came_damaged: bool = boolean(since=12, tag=20001, ignorable=True)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(since=7, until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[int] = array(i32, since=7)


class FetchRequest(Request):
    cluster_id: str | None = string(since=12, nullable=True, tag=0, default=None, ignorable=True)
    replica_id: int = i32(until=14, default=-1)
    replica_state: ReplicaState = nested(ReplicaState, since=15, tag=1)
    max_wait_ms: int = i32()
    min_bytes: int = i32()
    max_bytes: int = i32(default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = i8(ignorable=True)
    session_id: int = i32(since=7, ignorable=True)
    session_epoch: int = i32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)

    @classmethod
    def usual(cls, version: int) -> list[Message]:
        """Returns the shapes of a consumer's and of a follower's request for one partition."""
        if version < TOPIC_IDS_SINCE:
            return []
        consumer = cls(topics=[FetchTopic(partitions=[FetchPartition()])])
        if version < WATERMARK_SINCE:
            return [consumer]
        topics = [FetchTopic(partitions=[FetchPartition(high_watermark=0)])]
        return [consumer, cls(replica_state=ReplicaState(replica_id=0), topics=topics)]


class EpochEndOffset(Struct):
    epoch: int = i32(since=12, default=-1)
    end_offset: int = i64(since=12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = i32(since=12, default=-1)
    leader_epoch: int = i32(since=12, default=-1)


class SnapshotId(Struct):
    end_offset: int = i64(default=-1)
    epoch: int = i32(default=-1)


class AbortedTransaction(Struct):
    producer_id: int = i64()
    first_offset: int = i64()


class PartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    high_watermark: int = i64()
    last_stable_offset: int = i64(default=-1, ignorable=True)
    log_start_offset: int = i64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable=True, ignorable=True)
    preferred_read_replica: int = i32(since=11, default=-1)
    records: Records | None = records(nullable=True)


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32(since=16)
    host: str = string(since=16)
    port: int = i32(since=16)
    rack: str | None = string(since=16, nullable=True, default=None)


class FetchResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    error_code: int = i16(since=7, ignorable=True)
    session_id: int = i32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)

    @classmethod
    def usual(cls, version: int) -> list[Message]:
        """Returns the shape of records of one partition."""
        if version < TOPIC_IDS_SINCE:
            return []
        partition = PartitionData(aborted_transactions=None, records=b"records")
        return [cls(responses=[FetchableTopicResponse(partitions=[partition])])]
