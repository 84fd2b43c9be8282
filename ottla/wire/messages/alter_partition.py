"""AlterPartition: a leader asks the controller to change its ISR. The tagged field from 20000 on is our own."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, Uuid, array, i8, i16, i32, i64, uuid


class BrokerState(Struct):
    broker_id: int = i32(since=3)
    broker_epoch: int = i64(since=3, default=-1)


class PartitionData(Struct):
    partition_index: int = i32()
    leader_epoch: int = i32()
    new_isr: list[int] = array(i32, until=2)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, since=3)
    leader_recovery_state: int = i8()
    partition_epoch: int = i32()


class TopicData(Struct):
    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class AlterPartitionRequest(Request):
    broker_id: int = i32()
    broker_epoch: int = i64(default=-1)
    topics: list[TopicData] = array(TopicData)


class AlterPartitionResponsePartitionData(Struct):
    partition_index: int = i32()
    error_code: int = i16()
    leader_id: int = i32()
    leader_epoch: int = i32()
    isr: list[int] = array(i32)
    leader_recovery_state: int = i8(ignorable=True)
    partition_epoch: int = i32()
    eligible_replicas: list[int] = array(i32, since=3, tag=20000, ignorable=True)


class AlterPartitionResponseTopicData(Struct):
    topic_id: Uuid = uuid(ignorable=True)
    partitions: list[AlterPartitionResponsePartitionData] = array(AlterPartitionResponsePartitionData)


class AlterPartitionResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    topics: list[AlterPartitionResponseTopicData] = array(AlterPartitionResponseTopicData)
