"""AllocateProducerIds: a broker obtains a block of producer ids from the controller."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, i64


class AllocateProducerIdsRequest(Request):
    broker_id: int = i32()
    broker_epoch: int = i64(default=-1)


class AllocateProducerIdsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    producer_id_start: int = i64()
    producer_id_len: int = i32()
