"""Encodes Arrow rows as record batches, column by column, without a Python object per record.

numpy computes the fixed part of each record (its length, the deltas, the lengths of key and value) as one array of bytes. pyarrow joins it
with key and value row by row, and the result is the body of the batch. Before that, the headers of each row are joined in the same way.

Offsets begin at 0 in each batch. Producer id, epoch and sequence are -1; the sender of the batch sets them. Rows without a timestamp get
the time of the call. A batch that compression does not shrink stays uncompressed. `partitioning.py` chooses the partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.columns import HeaderColumn, binary_column, blob_lengths, find_column, header_column
from ottla.arrow.errors import RecordTooLargeError, RowsError
from ottla.arrow.varints import Varints, join_varints, varint_sizes, zigzag
from ottla.wire.batch_header import BATCH_OVERHEAD, CODEC_MASK, HEADER, LOG_OVERHEAD, MAGIC, TRANSACTIONAL_BIT, Buffer, stamp_crc
from ottla.wire.compression import CODEC_NAMES, CODEC_NONE, compress

BATCH_BYTES = 1 << 20
"""Default maximum size of a batch: with its header just below the default of `max.message.bytes`."""

_ROWS_BYTES_MAX = 1 << 30
"""Larger inputs are split, so that 32-bit offsets are sufficient."""
_RECORD_BYTES_MIN = 7
_HEADER_ROOM = bytes(BATCH_OVERHEAD)
_EMPTY = pa.scalar(b"", pa.binary())
_NO_HEADERS = pa.scalar(b"\0", pa.binary())
_ZERO = Varints(0, 1)
_NULL = Varints(1, 1)
"""The length field of a null key or value: -1, as zigzag."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A record batch without producer id, epoch and sequence. `count` is the number of its records."""

    data: bytearray
    count: int


class _Columns(NamedTuple):
    """The rows in the codec's form; a column that is None is null in every row."""

    key: Any | None
    value: Any | None
    timestamps: Any
    headers: Any | None

    def slice(self, start: int, stop: int) -> _Columns:
        key, value, timestamps, headers = self
        count = stop - start
        return _Columns(
            None if key is None else key.slice(start, count),
            None if value is None else value.slice(start, count),
            timestamps[start:stop],
            None if headers is None else headers.slice(start, count),
        )


def encode_rows(
    rows: Any,
    *,
    compression: str = "lz4",
    batch_bytes: int = BATCH_BYTES,
    record_bytes_max: int | None = None,
    is_transactional: bool,
) -> list[EncodedBatch]:
    """Encodes the rows of one partition (a pyarrow RecordBatch or Table) as record batches of at most `batch_bytes`, in order.

    The columns are `value` and, if present, `key`, `headers` and `timestamp`; others are ignored. A record larger than a batch gets its own
    batch. Raises `RecordTooLargeError` for a record of more than `record_bytes_max` (by default, what fits into one batch), and `RowsError`
    for rows without `value`, a column of an unsupported type, a header without a key, and an unknown compression.
    """
    if compression not in CODEC_NAMES:
        raise RowsError(f"compression {compression!r} is none of {', '.join(CODEC_NAMES)}")
    attributes = CODEC_NAMES.index(compression) | (TRANSACTIONAL_BIT if is_transactional else 0)
    record_bytes_max = batch_bytes - BATCH_OVERHEAD if record_bytes_max is None else record_bytes_max
    found = []
    for part in _parts(rows):
        columns = _read_columns(part)
        sizes = _record_sizes(columns, batch_bytes)
        if int(sizes.max()) > record_bytes_max:
            raise RecordTooLargeError(
                f"a record of {int(sizes.max())} bytes is larger than {record_bytes_max}, the maximum; make values smaller"
            )
        for start, stop in _cut(sizes, batch_bytes - BATCH_OVERHEAD):
            found.append(_encode(columns.slice(start, stop), stop - start, attributes))
    return found


def _parts(rows: Any) -> Iterator[Any]:
    """Yields the rows as record batches that are not empty and small enough for 32-bit offsets."""
    batches = rows.combine_chunks().to_batches() if isinstance(rows, pa.Table) else [rows]
    while batches:
        batch = batches.pop(0)
        if batch.nbytes > _ROWS_BYTES_MAX and batch.num_rows > 1:
            half = batch.num_rows // 2
            batches[:0] = [batch.slice(0, half), batch.slice(half)]
        elif batch.num_rows:
            yield batch


def _read_columns(rows: Any) -> _Columns:
    if find_column(rows, "value") is None:
        raise RowsError(f"the rows have no column 'value', only {', '.join(rows.schema.names) or 'none at all'}")
    headers = header_column(rows)
    return _Columns(
        binary_column(rows, "key"),
        binary_column(rows, "value"),
        _timestamps_ms(rows),
        None if headers is None else _join_headers(headers),
    )


def _timestamps_ms(rows: Any) -> Any:
    now_ms = time.time_ns() // 1_000_000
    column = find_column(rows, "timestamp")
    if column is None or column.null_count == len(column):
        return np.full(rows.num_rows, now_ms, np.int64)
    if not pa.types.is_timestamp(column.type):
        raise RowsError(f"column 'timestamp' is of type {column.type}; it has to be a timestamp")
    ticks = column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
    ms = {"s": lambda: ticks * 1000, "ms": lambda: ticks, "us": lambda: ticks // 1000, "ns": lambda: ticks // 1_000_000}[column.type.unit]()
    return np.where(column.is_null().to_numpy(zero_copy_only=False), now_ms, ms) if column.null_count else ms


def _join_headers(headers: HeaderColumn) -> Any:
    """Returns a binary array with the header count and the headers of each row."""
    keys, values, counts = headers
    total = len(keys)
    key_lengths, value_lengths = Varints.of(blob_lengths(keys)), Varints.of(blob_lengths(values))
    entries = _join(join_varints([key_lengths], total), keys, join_varints([value_lengths], total), values)
    _, ends, data = entries.buffers()
    of_entries = np.frombuffer(ends, np.int32, total + 1)
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    of_rows = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(of_entries[firsts]), data])
    return _join(join_varints([Varints.of(counts)], len(counts)), of_rows)


def _join(*columns: Any) -> Any:
    """Joins the columns of each row; null adds nothing. The result's data begins at 0 of its buffer."""
    return pc.binary_join_element_wise(*columns, _EMPTY, null_handling="replace", null_replacement="")


def _record_sizes(columns: _Columns, batch_bytes: int) -> Any:
    """Returns the maximum size of each record, whatever its position in a batch (int64)."""
    count = len(columns.timestamps)
    delta_max = int(columns.timestamps.max()) - int(columns.timestamps.min())
    numbers = [min(count, batch_bytes // _RECORD_BYTES_MIN + 1), min(delta_max, (1 << 63) - 1)]
    sizes = np.full(count, 1 + int(varint_sizes(zigzag(np.array(numbers, np.int64))).sum()), np.int64)
    for blob in (columns.key, columns.value):
        if blob is None:
            sizes += 1
        else:
            lengths = blob_lengths(blob)
            sizes += varint_sizes(zigzag(lengths)) + np.maximum(lengths, 0)
    sizes += 1 if columns.headers is None else blob_lengths(columns.headers)
    return sizes + varint_sizes(zigzag(sizes))


def _cut(sizes: Any, capacity: int) -> Iterator[tuple[int, int]]:
    """Yields runs of rows that fit into one batch, as (start, stop); a row that does not fit is its own run."""
    ends = np.cumsum(sizes)
    start, taken = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(ends, taken + capacity, side="right")))
        yield start, stop
        start, taken = stop, int(ends[stop - 1])


def _encode(columns: _Columns, count: int, attributes: int) -> EncodedBatch:
    timestamps = columns.timestamps
    base_timestamp, max_timestamp = int(timestamps[0]), int(timestamps.max())
    body: Buffer = _join_records(columns, count)
    codec = attributes & CODEC_MASK
    packed = compress(codec, body) if codec != CODEC_NONE else body
    if len(packed) < len(body):
        body = packed
    else:
        attributes &= ~CODEC_MASK
    data = bytearray().join((_HEADER_ROOM, body))
    length = len(data) - LOG_OVERHEAD
    HEADER.pack_into(data, 0, 0, length, -1, MAGIC, 0, attributes, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count)
    stamp_crc(data, 0, len(data))
    return EncodedBatch(data, count)


def _join_records(columns: _Columns, count: int) -> memoryview:
    key, value, timestamps, headers = columns
    deltas = timestamps - timestamps[0]
    offset_delta = Varints.of(np.arange(count, dtype=np.int64))
    time_delta = Varints.of(deltas) if deltas.any() else _ZERO
    key_length, key_bytes = _lengths(key)
    value_length, value_bytes = _lengths(value)
    headers_bytes = 1 if headers is None else blob_lengths(headers)
    fields = (time_delta, offset_delta, key_length, value_length)
    sizes = sum(field.sizes for field in fields) + 1 + key_bytes + value_bytes + headers_bytes
    front = [Varints.of(sizes), _ZERO, time_delta, offset_delta, key_length]
    if key is None:
        pieces = [join_varints([*front, value_length], count)]
    else:
        pieces = [join_varints(front, count), key, join_varints([value_length], count)]
    joined = _join(*pieces, *([] if value is None else [value]), _NO_HEADERS if headers is None else headers)
    _, ends, data = joined.buffers()
    return memoryview(data)[: int(np.frombuffer(ends, np.int32, count + 1)[-1])]


def _lengths(blob: Any | None) -> tuple[Varints, Any]:
    if blob is None:
        return _NULL, 0
    lengths = blob_lengths(blob)
    return Varints.of(lengths), np.maximum(lengths, 0)
