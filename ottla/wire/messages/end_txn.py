"""EndTxn: commits or aborts a transaction. From version 5 on, the answer has the producer epoch of the next transaction."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, boolean, i16, i32, i64, string


class EndTxnRequest(Request):
    transactional_id: str = string()
    producer_id: int = i64()
    producer_epoch: int = i16()
    committed: bool = boolean()


class EndTxnResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    producer_id: int = i64(since=5, default=-1, ignorable=True)
    producer_epoch: int = i16(since=5, default=-1, ignorable=True)
