"""FetchSnapshot: a piece of a snapshot of the metadata log."""

from __future__ import annotations

from ottla.wire.schema import Records, Request, Response, Struct, Uuid, array, i16, i32, i64, nested, records, string, u16, uuid


class SnapshotId(Struct):
    end_offset: int = i64()
    epoch: int = i32()


class PartitionSnapshot(Struct):
    partition: int = i32()
    current_leader_epoch: int = i32()
    snapshot_id: SnapshotId = nested(SnapshotId)
    position: int = i64()
    replica_directory_id: Uuid = uuid(since=1, tag=0, ignorable=True)


class TopicSnapshot(Struct):
    name: str = string()
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot)


class FetchSnapshotRequest(Request):
    cluster_id: str | None = string(nullable=True, tag=0, default=None)
    replica_id: int = i32(default=-1)
    max_bytes: int = i32(default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = i32()
    leader_epoch: int = i32()


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: int = i32()
    error_code: int = i16()
    snapshot_id: SnapshotId = nested(SnapshotId)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, tag=0)
    size: int = i64()
    position: int = i64()
    unaligned_records: Records = records(default=b"")


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: str = string()
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = array(FetchSnapshotResponsePartitionSnapshot)


class NodeEndpoint(Struct):
    node_id: int = i32(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class FetchSnapshotResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    error_code: int = i16()
    topics: list[FetchSnapshotResponseTopicSnapshot] = array(FetchSnapshotResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
