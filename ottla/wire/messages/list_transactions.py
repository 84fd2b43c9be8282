"""ListTransactions: the transactions that this broker coordinates, by state, producer, age and name."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class ListTransactionsRequest(Request):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(i64)
    duration_filter: int = i64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=True, default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = i64()
    transaction_state: str = string()


class ListTransactionsResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
