"""BeginQuorumEpoch: the new leader of the controller quorum announces its epoch."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, string, u16, uuid


class PartitionData(Struct):
    partition_index: int = i32()
    voter_directory_id: Uuid = uuid(since=1, ignorable=True)
    leader_id: int = i32()
    leader_epoch: int = i32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class BeginQuorumEpochRequest(Request):
    cluster_id: str | None = string(nullable=True, default=None)
    voter_id: int = i32(since=1, default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    leader_id: int = i32()
    leader_epoch: int = i32()


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartitionData] = array(BeginQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class BeginQuorumEpochResponse(Response):
    error_code: int = i16()
    topics: list[BeginQuorumEpochResponseTopicData] = array(BeginQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
