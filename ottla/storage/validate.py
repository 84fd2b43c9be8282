"""Checks a producer's batch before it is appended, and stamps it.

`check_batch` is the hot path: one header, one CRC, a few comparisons. `inspection.py` reads the timestamps of records. It does more only if
a setting demands that: a compacted topic (every record needs a key), `compression.type` (the batch is compressed again), or
`ottla.validate.records` (every record is checked). In other topics malformed records with a right CRC can be stored. They harm the readers
of that topic, not the broker, which handles the `WireError` of its own readers.

`settle_times` applies the topic's window of timestamps and corrects the largest timestamp in the header. `stamp_batch` applies
LogAppendTime and the topic's codec to a valid batch. It is called only for topics with one of them.

A refusal is an `ApiError`: CORRUPT_MESSAGE for bytes that were damaged on the way (clients send them again), INVALID_RECORD for malformed
bytes, and MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE or INVALID_TIMESTAMP. `producers.py` checks sequences and transactions,
`inspection.py` the records.
"""

from __future__ import annotations

from struct import error as StructError

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.base.log_config import LogConfig
from ottla.base.types import NO_TIMESTAMP
from ottla.storage.inspection import LOOP_BYTES_MAX
from ottla.wire.batch_header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_batch_header,
    set_max_timestamp,
)
from ottla.wire.checksum import crc32c
from ottla.wire.compression import CODEC_ZSTD
from ottla.wire.record_times import TimeRange
from ottla.wire.record_validation import FAULTS_NAMED_MAX
from ottla.wire.records import iter_records

_RECORD_BYTES_MIN = 7  # length, attributes, timestamp, offset, key, value, headers: one byte each
_CODEC_MAX = CODEC_ZSTD
_BROKER_ONLY_BITS = CONTROL_BIT | DELETE_HORIZON_BIT | TIMESTAMP_TYPE_BIT
_new_tuple = tuple.__new__


def check_batch(batch: memoryview, config: LogConfig, *, is_staged: bool = False, is_intact: bool = False) -> BatchHeader:
    """Returns the header of the single valid batch in `batch`. Raises `ApiError` for anything else. Changes nothing.

    A staged batch (`staged_chunk.py`) may belong to a transaction before it has a producer id. With `is_intact` the CRC is not checked: the
    caller has just computed it over checked bytes.
    """
    size = len(batch)
    try:
        fields = HEADER.unpack_from(batch, 0)
    except StructError:
        raise _refuse_framing(batch) from None
    _, length, _, magic, crc, attributes, delta, _, _, producer_id, _, _, count = fields
    if length + LOG_OVERHEAD != size or magic != MAGIC:
        raise _refuse_framing(batch)
    if size > config.max_message_bytes:
        message = f"a record batch of {size} bytes, max.message.bytes is {config.max_message_bytes}"
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, message)
    if not is_intact and crc32c(batch[21:]) != crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the CRC of a record batch is wrong")
    header: BatchHeader = _new_tuple(BatchHeader, fields)
    if count != delta + 1 or count < 1 or fields[0] or attributes & _BROKER_ONLY_BITS:
        raise _refuse_header(header)
    if producer_id >= 0:
        if header[11] < 0 or header[10] < 0:
            raise ApiError(ErrorCode.INVALID_RECORD, f"producer {producer_id} sent epoch {header[10]} and sequence {header[11]}")
    elif attributes & TRANSACTIONAL_BIT and not is_staged:
        raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")
    codec = attributes & CODEC_MASK
    if codec == 0:
        if count * _RECORD_BYTES_MIN > size - BATCH_OVERHEAD:
            raise ApiError(ErrorCode.INVALID_RECORD, f"a batch says {counted(count, 'record')} in {size - BATCH_OVERHEAD} bytes")
    elif count * _RECORD_BYTES_MIN > config.decompressed_bytes_max:
        message = f"a batch of {counted(count, 'record')} unpacks to more than {config.decompressed_bytes_max} bytes"
        raise ApiError(ErrorCode.INVALID_RECORD, message)
    elif codec > _CODEC_MAX:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression codec {codec}")
    elif size == BATCH_OVERHEAD:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a compressed batch without bytes")
    return header


def settle_times(batch: memoryview, header: BatchHeader, times: TimeRange | None, config: LogConfig, *, now_ms: int) -> BatchHeader:
    """Raises `ApiError` for a batch with a record outside of the topic's window of timestamps (message.timestamp.before/after.max.ms).
    Writes the largest timestamp into the header if the header has another one. Without `times` the timestamps in the header are used.
    Returns the header.
    """
    if times is None:
        base, largest = header.base_timestamp, header.max_timestamp
        smallest = base if 0 <= base < largest else largest
    else:
        smallest, largest = times
    if largest - now_ms > config.timestamp_after_max_ms:
        message = f"timestamp {largest} is more than {config.timestamp_after_max_ms} ms ahead of the broker's {now_ms}"
        raise _refuse_timestamps(batch, config, now_ms, message)
    if now_ms - smallest > config.timestamp_before_max_ms and smallest != NO_TIMESTAMP:
        message = f"timestamp {smallest} is more than {config.timestamp_before_max_ms} ms behind the broker's {now_ms}"
        raise _refuse_timestamps(batch, config, now_ms, message)
    if largest == header.max_timestamp:
        return header
    set_max_timestamp(batch, 0, CREATE_TIME, largest)
    return read_batch_header(batch)


def stamp_batch(
    batch: memoryview, header: BatchHeader, config: LogConfig, *, now_ms: int, repacked: bytearray | None = None
) -> tuple[memoryview, BatchHeader]:
    """Returns the batch to store, and its header: with the topic's codec (`repacked`) and, under LogAppendTime, the broker's time.

    The returned header has the CRC and codec of the stored batch.
    """
    if repacked is not None:
        batch = memoryview(repacked)
    if config.is_log_append_time:
        set_max_timestamp(batch, 0, LOG_APPEND_TIME, now_ms)
    return batch, read_batch_header(batch)


def is_stamped(config: LogConfig) -> bool:
    """Whether a log of this configuration may store other bytes than it receives."""
    return config.is_log_append_time or config.compression_type != "producer"


def _refuse_timestamps(batch: memoryview, config: LogConfig, now_ms: int, message: str) -> ApiError:
    """Returns the refusal, which names the records outside the window. It names none if the records are many or cannot be read."""
    faults = {}
    if read_batch_header(batch).record_count > FAULTS_NAMED_MAX:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    try:
        for record in iter_records(batch, decompressed_bytes_max=min(LOOP_BYTES_MAX, config.decompressed_bytes_max)):
            age_ms = now_ms - record.timestamp
            if record.timestamp != NO_TIMESTAMP and (age_ms > config.timestamp_before_max_ms or -age_ms > config.timestamp_after_max_ms):
                faults[record.offset] = f"Timestamp {record.timestamp} is outside the window that the topic allows."
    except WireError:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    return RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, faults)


def _refuse_framing(batch: memoryview) -> ApiError:
    """Returns the refusal of bytes that are not exactly one batch of magic 2, with Kafka's codes."""
    size = len(batch)
    if size > MAGIC_AT and batch[MAGIC_AT] < MAGIC:
        message = f"message format v{batch[MAGIC_AT]} is not taken any more, only v{MAGIC}"
        return ApiError(ErrorCode.INVALID_RECORD, message)
    if size < BATCH_OVERHEAD:
        return ApiError(ErrorCode.INVALID_RECORD, f"a record batch needs {BATCH_OVERHEAD} bytes, there are {size}")
    if batch[MAGIC_AT] != MAGIC:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"there is no message format {batch[MAGIC_AT]}")
    length: int = HEADER.unpack_from(batch, 0)[1]
    if length + LOG_OVERHEAD < BATCH_OVERHEAD:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch says {length + LOG_OVERHEAD} bytes, {BATCH_OVERHEAD} are needed")
    if length + LOG_OVERHEAD < size:
        message = f"a partition must be sent exactly one batch, {size - length - LOG_OVERHEAD} bytes are left behind it"
        return ApiError(ErrorCode.INVALID_RECORD, message)
    return ApiError(ErrorCode.INVALID_RECORD, f"a record batch says {length + LOG_OVERHEAD} bytes, there are {size}")


def _refuse_header(header: BatchHeader) -> ApiError:
    """Returns the refusal of a header, which names the wrong field."""
    if header.base_offset:
        return ApiError(ErrorCode.INVALID_RECORD, f"the base offset of a batch must be 0, it is {header.base_offset}")
    if header.is_control:
        return ApiError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.has_delete_horizon:
        return ApiError(ErrorCode.INVALID_RECORD, "clients may not set a delete horizon")
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, "clients may not claim the broker's append time")
    message = f"a batch of {counted(header.record_count, 'record')} whose last offset delta is {header.last_offset_delta}"
    return ApiError(ErrorCode.INVALID_RECORD, message)
