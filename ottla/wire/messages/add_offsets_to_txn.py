"""AddOffsetsToTxn: adds the offsets of a group to a transaction."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, i16, i32, i64, string


class AddOffsetsToTxnRequest(Request):
    transactional_id: str = string()
    producer_id: int = i64()
    producer_epoch: int = i16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
