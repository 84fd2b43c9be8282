"""LeaderAndIsr: the controller assigns a broker the partitions that it leads or follows.

The tagged fields from 20000 on are Ottla's. Only controllers of Ottla send them.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, boolean, i8, i16, i32, i64, string, uuid


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = string(until=1, ignorable=True)
    partition_index: int = i32()
    controller_epoch: int = i32()
    leader: int = i32()
    leader_epoch: int = i32()
    isr: list[int] = array(i32)
    partition_epoch: int = i32()
    replicas: list[int] = array(i32)
    adding_replicas: list[int] = array(i32, since=3, ignorable=True)
    removing_replicas: list[int] = array(i32, since=3, ignorable=True)
    is_new: bool = boolean(since=1, ignorable=True)
    leader_recovery_state: int = i8(since=6)
    offline_replicas: list[int] = array(i32, since=7, tag=20000, ignorable=True)
    eligible_replicas: list[int] = array(i32, since=7, tag=20001, ignorable=True)
    last_leader: int = i32(since=7, tag=20002, default=-1, ignorable=True)
    loss_epoch: int = i32(since=7, tag=20003, default=-1, ignorable=True)


class LeaderAndIsrConfig(Struct):
    name: str = string()
    value: str = string()


class LeaderAndIsrTopicState(Struct):
    topic_name: str = string(since=2)
    topic_id: Uuid = uuid(since=5, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, since=2)
    configs: list[LeaderAndIsrConfig] = array(LeaderAndIsrConfig, since=7, tag=20000, ignorable=True)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = i32()
    host_name: str = string()
    port: int = i32()


class LeaderAndIsrRequest(Request):
    controller_id: int = i32()
    is_kraft_controller: bool = boolean(since=7)
    controller_epoch: int = i32()
    broker_epoch: int = i64(since=2, default=-1, ignorable=True)
    type: int = i8(since=5)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, until=1)
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, since=2)
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)
    sequence: int = i64(since=7, tag=20000, default=-1, ignorable=True)
    part: int = i32(since=7, tag=20001, ignorable=True)
    has_more_parts: bool = boolean(since=7, tag=20002, ignorable=True)


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = string(until=4, ignorable=True)
    partition_index: int = i32()
    error_code: int = i16()


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = uuid(since=5)
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, since=5)


class LeaderAndIsrResponse(Response):
    error_code: int = i16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, until=4)
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, since=5)
