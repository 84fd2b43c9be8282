"""The records of `__transaction_state`: Kafka's TransactionLogKey and TransactionLogValue (reads versions 0 and 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.base.bounded_cache import remembered
from ottla.base.immutable import immutable
from ottla.base.types import TopicPartition
from ottla.machine.contract import LogRecord
from ottla.machine.record_format import RecordFormat, write_key, write_value
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.states import DEAD, EMPTY, STATUS_NUMBERS, STATUS_STATES
from ottla.wire.messages import transaction_records
from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

KEYS_BYTES_MAX = 2 << 20
"""Bytes of memory for encoded keys; the oldest are evicted first. 2 MiB: about 4,000 transactional ids."""
VALUE_VERSION = 1
_FORMAT = RecordFormat(transaction_records)


class TransactionRecord(NamedTuple):
    """A decoded record; `metadata` is None for a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


@immutable
class TransactionStateRecord(LogRecord):
    """An encoded record with its decoded value, so that the leader that wrote it need not decode it again."""

    metadata: TransactionMetadata


def state_record(metadata: TransactionMetadata) -> TransactionStateRecord:
    assert metadata.state is not DEAD, "a dead id is a tombstone"
    value = write_value(_to_value(metadata), VALUE_VERSION)
    return TransactionStateRecord(_write_key(metadata.transactional_id), value, metadata)


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(_write_key(transactional_id), None)


def read_record(record: LogRecord) -> TransactionRecord | None:
    """Returns None for an unknown or damaged record (`machine/record_format.py`)."""
    if type(record) is TransactionStateRecord:
        return TransactionRecord(record.metadata.transactional_id, record.metadata)
    key: Any = _FORMAT.read_key(record.key)
    if key is None:
        return None
    if record.value is None:
        return TransactionRecord(key.transactional_id, None)
    value: Any = _FORMAT.read_value(key, record.value)
    metadata = None if value is None else _to_metadata(key.transactional_id, value)
    return TransactionRecord(key.transactional_id, metadata) if metadata is not None else None


@remembered(KEYS_BYTES_MAX)
def _write_key(transactional_id: str) -> bytes:
    return write_key(TransactionLogKey(transactional_id=transactional_id))


def _to_metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata | None:
    state = STATUS_STATES.get(value.transaction_status)
    if state is None or state is DEAD:
        return None
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition) for topic in value.transaction_partitions or () for partition in topic.partition_ids
        ),
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_transaction_version=value.client_transaction_version,
    )


def _to_value(metadata: TransactionMetadata) -> TransactionLogValue:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        next_producer_epoch=metadata.next_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=STATUS_NUMBERS[metadata.state],
        transaction_partitions=None if metadata.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.update_timestamp_ms,
        transaction_start_timestamp_ms=metadata.start_timestamp_ms,
        client_transaction_version=metadata.client_transaction_version,
    )
