"""Vote: a candidate of the controller quorum asks for votes."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i16, i32, i64, string, u16, uuid


class PartitionData(Struct):
    partition_index: int = i32()
    replica_epoch: int = i32()
    replica_id: int = i32()
    replica_directory_id: Uuid = uuid(since=1, ignorable=True)
    voter_directory_id: Uuid = uuid(since=1, ignorable=True)
    last_offset_epoch: int = i32()
    last_offset: int = i64()
    pre_vote: bool = boolean(since=2)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class VoteRequest(Request):
    cluster_id: str | None = string(nullable=True, default=None)
    voter_id: int = i32(since=1, default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class VoteResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    leader_id: int = i32()
    leader_epoch: int = i32()
    vote_granted: bool = boolean()


class VoteResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[VoteResponsePartitionData] = array(VoteResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = i32(since=1)
    host: str = string(since=1)
    port: int = u16(since=1)


class VoteResponse(Response):
    error_code: int = i16()
    topics: list[VoteResponseTopicData] = array(VoteResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
