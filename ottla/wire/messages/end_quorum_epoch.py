"""EndQuorumEpoch: the leader of the controller quorum resigns and names its preferred successors."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, string, u16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = i32(since=1)
    candidate_directory_id: Uuid = uuid(since=1)


class PartitionData(Struct):
    partition_index: int = i32()
    leader_id: int = i32()
    leader_epoch: int = i32()
    preferred_successors: list[int] = array(i32, until=0, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, since=1, ignorable=True)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class EndQuorumEpochRequest(Request):
    cluster_id: str | None = string(nullable=True, default=None)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    leader_id: int = i32()
    leader_epoch: int = i32()


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartitionData] = array(EndQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class EndQuorumEpochResponse(Response):
    error_code: int = i16()
    topics: list[EndQuorumEpochResponseTopicData] = array(EndQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
