"""Records of `__transaction_state`: the state of one transactional id."""

from __future__ import annotations

from ottla.wire.schema import RecordKey, RecordValue, Struct, array, i8, i16, i32, i64, string


class TransactionLogKey(RecordKey, key=0, versions=(0, 0)):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(i32)


class TransactionLogValue(RecordValue, key=0, versions=(0, 1), flexible=1):
    producer_id: int = i64()
    previous_producer_id: int = i64(since=1, tag=0, default=-1)
    next_producer_id: int = i64(since=1, tag=1, default=-1)
    producer_epoch: int = i16()
    next_producer_epoch: int = i16(since=1, tag=3, default=-1)
    transaction_timeout_ms: int = i32()
    transaction_status: int = i8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=True)
    transaction_last_update_timestamp_ms: int = i64()
    transaction_start_timestamp_ms: int = i64()
    client_transaction_version: int = i16(since=1, tag=2)
