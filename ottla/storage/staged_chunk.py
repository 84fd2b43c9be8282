"""Checks the chunks of StageRecords, an extension: a client puts record batches aside on the leader, outside of the log. AttachRecords
appends them later as part of a transaction, and only then do they get a producer id.

Each batch is checked as in Produce, with these exceptions: it must be transactional, its producer id must be -1, it keeps its codec, and a
compressed batch is not decompressed merely because the topic bounds timestamps. A chunk is bounded in bytes and batches, so that the work
on one is bounded too.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.storage.inspection import LoopBudget, WorkerNeeded, demands_of, inspect_here
from ottla.storage.validate import check_batch, settle_times
from ottla.wire.batch_header import BATCH_LENGTH_AT, BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader

CHUNK_BYTES_MAX = 1 << 20
"""Bytes of a chunk, at most, unless `max.message.bytes` of the topic is larger."""
CHUNK_BATCHES_MAX = 1_000
CHUNK_RECORDS_MAX = 1 << 30
"""Half of all sequence numbers. They wrap, so with more of them earlier and later numbers could not be distinguished."""
LOOKED_INTO_RECORDS_MAX = 50_000
LOOKED_INTO_BYTES_MAX = 8 << 20
"""Decompressed bytes of one chunk. Decompressing blocks the event loop."""
LOOKED_INTO_TIMES_MAX = CHUNK_RECORDS_MAX
"""Timestamps that are read in uncompressed batches. The size of the chunk limits them further."""

NO_PRODUCER = -1
_read_length = Struct(">i").unpack_from


class ChunkContents(NamedTuple):
    """The number of batches and records in a valid chunk."""

    batches: int
    records: int


def check_chunk(
    chunk: memoryview, config: LogConfig, *, now_ms: int, batches_max: int = CHUNK_BATCHES_MAX
) -> ChunkContents:
    """Checks a chunk and counts its batches and records. Raises `ApiError` with the codes of Produce, and INVALID_REQUEST for too many
    batches. `now_ms` is wall time."""
    bytes_max = max(config.max_message_bytes, CHUNK_BYTES_MAX)
    if len(chunk) > bytes_max:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"a staged chunk of {len(chunk)} bytes, {bytes_max} are allowed")
    batches = records = 0
    budget = LoopBudget(LOOKED_INTO_RECORDS_MAX, LOOKED_INTO_BYTES_MAX, LOOKED_INTO_TIMES_MAX)
    for batch in batches_of(chunk):
        if batches == batches_max:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"more than {batches_max} record batches to be staged at once")
        header = check_batch(batch, config, is_staged=True)
        if not header.is_transactional or header.producer_id != NO_PRODUCER:
            message = "a staged batch must be transactional and without a producer, which it gets when it is attached"
            raise ApiError(ErrorCode.INVALID_RECORD, message)
        _look_into(batch, header, config, budget, now_ms)
        batches += 1
        records += header.record_count
    if not batches or records > CHUNK_RECORDS_MAX:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a staged chunk of {batches} batches and {counted(records, 'record')}")
    return ChunkContents(batches, records)


def _look_into(batch: memoryview, header: BatchHeader, config: LogConfig, budget: LoopBudget, now_ms: int) -> None:
    """Decodes the records if the topic demands that, and checks the timestamps. May correct the largest timestamp in the header."""
    demands = demands_of(header, config, is_staged=True)
    try:
        found = None if demands is None else inspect_here(batch, header, demands, budget)
    except WorkerNeeded:
        message = f"a staged chunk unpacks to more than {LOOKED_INTO_RECORDS_MAX} records or {LOOKED_INTO_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.INVALID_RECORD, message) from None
    if not config.is_log_append_time:
        settle_times(batch, header, found and found.times, config, now_ms=now_ms)


def batches_of(chunk: memoryview) -> Iterator[memoryview]:
    """Cuts a chunk into batches by their length fields. If these do not fit the chunk, the last piece is not a whole batch, which
    `check_batch` refuses."""
    position, size = 0, len(chunk)
    while position < size:
        end = size
        if size - position >= BATCH_OVERHEAD:
            length = LOG_OVERHEAD + _read_length(chunk, position + BATCH_LENGTH_AT)[0]
            if length >= BATCH_OVERHEAD:
                end = position + length
        yield chunk[position:end]
        position = end
