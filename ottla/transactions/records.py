"""The records of `__transaction_state`: Kafka's TransactionLogKey version 0 and TransactionLogValue version 1 (4.x); version 0 is decoded
too.

`read_record` returns None for a record that this coordinator does not know (another key, a later version, damaged bytes). Such records are
skipped without an error, because a client could have written them.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import NamedTuple

from ottla.base.bounded_cache import remembered
from ottla.base.errors import WireError
from ottla.base.immutable import immutable
from ottla.base.types import TopicPartition
from ottla.machine.contract import LogRecord
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.states import DEAD, EMPTY, STATUS_NUMBERS, STATUS_STATES
from ottla.wire.codec import decoder, encoder
from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

_INT16 = Packer(">h")
KEYS_BYTES_MAX = 2 << 20
"""Memory for the encoded keys of the transactional ids that were used last. 2 MiB: about 4,000 ids."""
KEY_VERSION = 0
VALUE_VERSION = 1
_KEY_PREFIX = _INT16.pack(KEY_VERSION)
_VALUE_PREFIX = _INT16.pack(VALUE_VERSION)


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
    value = _VALUE_PREFIX + encoder(TransactionLogValue, VALUE_VERSION)(_to_value(metadata))
    return TransactionStateRecord(_write_key(metadata.transactional_id), value, metadata)


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(_write_key(transactional_id), None)


def read_record(record: LogRecord) -> TransactionRecord | None:
    if type(record) is TransactionStateRecord:
        return TransactionRecord(record.metadata.transactional_id, record.metadata)
    try:
        key = _read_key(record.key)
        if key is None:
            return None
        if record.value is None:
            return TransactionRecord(key.transactional_id, None)
        metadata = _read_value(key.transactional_id, record.value)
    except WireError:
        return None
    return TransactionRecord(key.transactional_id, metadata) if metadata is not None else None


@remembered(KEYS_BYTES_MAX)
def _write_key(transactional_id: str) -> bytes:
    return _KEY_PREFIX + encoder(TransactionLogKey, KEY_VERSION)(TransactionLogKey(transactional_id=transactional_id))


def _read_key(data: bytes) -> TransactionLogKey | None:
    if data[:2] != _KEY_PREFIX:
        return None
    key, end = decoder(TransactionLogKey, KEY_VERSION)(data, 2)
    return key if end == len(data) else None


def _read_value(transactional_id: str, data: bytes) -> TransactionMetadata | None:
    if len(data) < 2:
        return None
    version = _INT16.unpack_from(data)[0]
    if not 0 <= version <= VALUE_VERSION:
        return None
    value, _ = decoder(TransactionLogValue, version)(data, 2)
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
