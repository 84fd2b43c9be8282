"""AddPartitionsToTxn: adds partitions to a transaction. From version 4 on, a request may have several transactions, and may only verify
them; brokers use this."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, i16, i32, i64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(i32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string(since=4)
    producer_id: int = i64(since=4)
    producer_epoch: int = i16(since=4)
    verify_only: bool = boolean(since=4)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


class AddPartitionsToTxnRequest(Request):
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = i64(until=3)
    v3_and_below_producer_epoch: int = i16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = i32()
    partition_error_code: int = i16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, since=4)


class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: int = i32()
    error_code: int = i16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)
