"""InitProducerId: a producer obtains its id and epoch; a transactional one fences its predecessor."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, boolean, i16, i32, i64, string


class InitProducerIdRequest(Request):
    transactional_id: str | None = string(nullable=True)
    transaction_timeout_ms: int = i32()
    producer_id: int = i64(since=3, default=-1)
    producer_epoch: int = i16(since=3, default=-1)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class InitProducerIdResponse(Response):
    throttle_time_ms: int = i32(ignorable=True)
    error_code: int = i16()
    producer_id: int = i64(default=-1)
    producer_epoch: int = i16()
    ongoing_txn_producer_id: int = i64(since=6, default=-1)
    ongoing_txn_producer_epoch: int = i16(since=6, default=-1)
