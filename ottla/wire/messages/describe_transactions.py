"""DescribeTransactions: the state of transactions by transactional id."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class DescribeTransactionsRequest(Request, key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


class TransactionState(Struct):
    error_code: int = i16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = i32()
    transaction_start_time_ms: int = i64()
    producer_id: int = i64()
    producer_epoch: int = i16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: int = i32()
    transaction_states: list[TransactionState] = array(TransactionState)
