"""DescribeQuorum: the leader, voters and observers of the controller quorum, with the log end offset of each."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i16, i32, i64, string, u16, uuid


class PartitionData(Struct):
    partition_index: int = i32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Request):
    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    replica_id: int = i32()
    replica_directory_id: Uuid = uuid(since=2)
    log_end_offset: int = i64()
    last_fetch_timestamp: int = i64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = i64(since=1, default=-1, ignorable=True)


class DescribeQuorumResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    error_message: str | None = string(since=2, nullable=True, ignorable=True)
    leader_id: int = i32()
    leader_epoch: int = i32()
    high_watermark: int = i64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribeQuorumResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartitionData] = array(DescribeQuorumResponsePartitionData)


class Listener(Struct):
    name: str = string(since=2)
    host: str = string(since=2)
    port: int = u16(since=2)


class Node(Struct):
    node_id: int = i32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


class DescribeQuorumResponse(Response):
    error_code: int = i16()
    error_message: str | None = string(since=2, nullable=True, ignorable=True)
    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    nodes: list[Node] = array(Node, since=2)
