"""DescribeTransactions: the state of transactions by transactional id.

The two tagged fields are ours, for our own tools; clients skip tags that they do not know.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, i16, i32, i64, string


class DescribeTransactionsRequest(Request):
    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    topic: str = string()
    partitions: list[int] = array(i32)


OTTLA_CLIENT_ID_TAG = 10_000
OTTLA_CLIENT_HOST_TAG = 10_001


class TransactionState(Struct):
    error_code: int = i16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = i32()
    transaction_start_time_ms: int = i64()
    producer_id: int = i64()
    producer_epoch: int = i16()
    topics: list[TopicData] = array(TopicData)
    ottla_client_id: str = string(tag=OTTLA_CLIENT_ID_TAG, ignorable=True)
    ottla_client_host: str = string(tag=OTTLA_CLIENT_HOST_TAG, ignorable=True)


class DescribeTransactionsResponse(Response):
    throttle_time_ms: int = i32()
    transaction_states: list[TransactionState] = array(TransactionState)
