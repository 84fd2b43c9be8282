"""ControlledShutdown: a broker asks the controller to elect other leaders for its partitions. Version 0 has a request header without a
client id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class ControlledShutdownRequest(Request):
    broker_id: int = i32()
    broker_epoch: int = i64(since=2, default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = string()
    partition_index: int = i32()


class ControlledShutdownResponse(Response):
    error_code: int = i16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
