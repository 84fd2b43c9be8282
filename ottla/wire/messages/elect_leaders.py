"""ElectLeaders: elects the preferred replica as leader, or any live replica, which may lose records."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i8, i16, i32, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


class ElectLeadersRequest(Request):
    election_type: int = i8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=True)
    timeout_ms: int = i32(default=60_000)


class PartitionResult(Struct):
    partition_id: int = i32()
    error_code: int = i16()
    error_message: str | None = string(nullable=True)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
