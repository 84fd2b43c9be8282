"""Decodes record batches into Arrow, column by column, without a Python object per record.

Only one step is sequential: a record's start is known only from the previous record's length. From the array of starts, numpy reads each
field of all records at once, and pyarrow copies keys and values out of the uncompressed bytes. Records of consecutive batches in a Fetch
answer are decoded together, some megabytes at a time, so that small batches are not slow.

After compaction there are gaps between offsets, and a fetch may begin and end inside a batch. Only offsets from the requested start up to
the end of the plan are returned. Damaged batches raise `DamagedBatchError` with the offset of the first one. The client has already dropped
control batches and, under read_committed, aborted batches, and has checked the checksums.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.arrow.blobs import HEADERS, Blobs, read_blobs, read_headers, take_blobs
from ottla.arrow.errors import DamagedBatchError
from ottla.arrow.varints import read_varints, unzigzag
from ottla.client import Fetched, TopicPartition, WireError
from ottla.wire.batch_header import LOG_APPEND_TIME, BatchHeader, record_section
from ottla.wire.record_validation import read_zigzag
from ottla.wire.records import Buffer, iter_records

_GROUP_BYTES = 2 << 20
"""Uncompressed bytes decoded together: enough to make the overhead of numpy's calls negligible, few enough for a core's cache."""

_ROWS_MAX = 1 << 16
"""Maximum rows of one returned record batch."""

_MS_MAX = ((1 << 63) - 1) // 1000
_MS_SAFE = 1 << 52
"""Timestamps and deltas below this cannot overflow when added."""

_TIMESTAMP = pa.timestamp("us", "UTC")

_TURNS_MIN = 8
"""Records that are walked one by one before a run of equal sizes is tried; doubled after each failure."""
_RUN_MIN = 16
_RUN_MAX = 4096
"""Records that a run of equal sizes tries at first, and at most."""

_STEP = [1 + (byte >> 1) for byte in range(128)] + [2 + (byte - 128 >> 1) for byte in range(128, 256)]
_STEP_HIGH = tuple(byte << 6 for byte in range(128))
"""A record's size is `_STEP` of the first byte of its length field, plus `_STEP_HIGH` of a second byte. A third byte raises IndexError."""


def arrow_schema(*, include_headers: bool) -> Any:
    """Returns the columns of the source, with the names and types of Spark's Kafka connector."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
    ]
    return pa.schema([*fields, pa.field("headers", HEADERS)] if include_headers else fields)


def chosen_fields(schema: Any, columns: Sequence[tuple[str, bool]]) -> Any:
    return pa.schema([schema.field(name).with_nullable(may_be_null) for name, may_be_null in columns])


def decode_batches(fetched: Fetched, end: int, *, include_headers: bool = False, schema: Any | None = None) -> Iterator[Any]:
    """Yields the records with `fetched.start` <= offset < `end` as pyarrow record batches of at most `_ROWS_MAX` rows, none of them empty.

    `schema` has the wanted fields of `arrow_schema`, in any order; the default is all, with `headers` if `include_headers` is set. Raises
    `DamagedBatchError`.
    """
    if schema is None:
        schema = arrow_schema(include_headers=include_headers)
    group: list[_Section] = []
    size = 0
    for header, batch in fetched.batches:
        if header.record_count == 0 or header.last_offset < fetched.start or header.base_offset >= end:
            continue
        section = _read_section(fetched, header, batch)
        if group and size + len(section.data) > _GROUP_BYTES:
            yield from _decode_group(fetched, group, end, schema)
            group, size = [], 0
        group.append(section)
        size += len(section.data)
    if group:
        yield from _decode_group(fetched, group, end, schema)


class _Section(NamedTuple):
    header: BatchHeader
    data: Buffer
    batch: Buffer


class _Bounds(NamedTuple):
    """The start of each record (including its length field), its end, and the index of its section."""

    starts: Any
    ends: Any
    sections: Any

    def slice(self, start: int, stop: int) -> _Bounds:
        return _Bounds(self.starts[start:stop], self.ends[start:stop], self.sections[start:stop])


class _Fields(NamedTuple):
    """The fields of records, as arrays; `headers_at` is the position of the header count."""

    offsets: Any
    times_us: Any
    time_types: Any
    keys: Blobs
    values: Blobs
    headers_at: Any
    ends: Any

    def select(self, kept: Any) -> _Fields:
        offsets, times_us, time_types, keys, values, headers_at, ends = self
        return _Fields(
            offsets[kept], times_us[kept], time_types[kept], keys.select(kept), values.select(kept), headers_at[kept], ends[kept]
        )


def _read_section(fetched: Fetched, header: BatchHeader, batch: Buffer) -> _Section:
    if header.record_count < 0:
        raise _damaged(fetched, header, WireError(f"its number of records is {header.record_count}"))
    try:
        return _Section(header, record_section(batch, header), batch)
    except WireError as error:
        raise _damaged(fetched, header, error) from None


def _damaged(fetched: Fetched, header: BatchHeader, error: Exception) -> DamagedBatchError:
    return DamagedBatchError(f"the batch at offset {header.base_offset} of {fetched.partition} is damaged: {error}")


def _decode_group(fetched: Fetched, group: Sequence[_Section], end: int, schema: Any) -> Iterator[Any]:
    try:
        buffer = b"".join([section.data for section in group])
        bounds = _record_bounds(buffer, group)
        for first in range(0, len(bounds.starts), _ROWS_MAX):
            fields = _read_fields(buffer, group, bounds.slice(first, first + _ROWS_MAX))
            is_wanted = (fields.offsets >= fetched.start) & (fields.offsets < end)
            if not is_wanted.all():
                fields = fields.select(np.flatnonzero(is_wanted))
            if len(fields.offsets):
                yield _build_rows(fetched.partition, buffer, fields, schema)
    except (WireError, IndexError) as error:
        raise _first_damaged(fetched, group, error) from None


def _first_damaged(fetched: Fetched, group: Sequence[_Section], error: Exception) -> DamagedBatchError:
    """Returns an error that names the damaged batch. It decodes each batch with the codec for single records, whose messages are precise.
    """
    for section in group:
        try:
            deque(iter_records(section.batch), maxlen=0)
        except WireError as found:
            return _damaged(fetched, section.header, found)
    return _damaged(fetched, group[0].header, error)


def _record_bounds(buffer: bytes, group: Sequence[_Section]) -> _Bounds:
    starts: list[int] = []
    firsts, section_ends = [], []
    position = 0
    for section in group:
        firsts.append(len(starts))
        _append_starts(starts, buffer, position, section.header.record_count)
        position += len(section.data)
        section_ends.append(position)
    found = np.fromiter(starts, np.int64, len(starts))
    counts = np.diff(firsts, append=len(starts))
    ends = np.append(found[1:], 0)
    ends[np.cumsum(counts) - 1] = section_ends
    return _Bounds(found, ends, np.repeat(np.arange(len(group)), counts))


def _append_starts(starts: list[int], data: bytes, position: int, count: int) -> None:
    """Appends the starts of `count` records: walks some records one by one, then tests whether the following ones have the same size."""
    wanted, turns, window = len(starts) + count, _TURNS_MIN, _RUN_MIN
    while len(starts) < wanted:
        position = _walk(starts, data, position, min(turns, wanted - len(starts)))
        size = position - starts[-1]
        run = _count_alike(data, position, size, min(window, wanted - len(starts)))
        starts.extend(range(position, position + run * size, size))
        position += run * size
        if run == window:
            turns, window = 1, min(4 * window, _RUN_MAX)
        else:
            turns, window = _TURNS_MIN if run >= _RUN_MIN else 2 * max(turns, _TURNS_MIN), _RUN_MIN


def _walk(starts: list[int], data: bytes, position: int, count: int) -> int:
    """Appends the starts of `count` records one by one; returns the end of the last one. This loop over records costs as much as all other
    steps."""
    append, step, step_high, wanted = starts.append, _STEP, _STEP_HIGH, len(starts) + count
    while len(starts) < wanted:
        try:
            for _ in range(wanted - len(starts)):
                append(position)
                low = data[position]
                if low < 128:
                    position += step[low]
                else:
                    position += step[low] + step_high[data[position + 1]]
        except IndexError:
            # The length has three bytes or more; a truncated length raises IndexError again.
            length, position = read_zigzag(data, position)
            position += length >> 1
    return position


def _count_alike(data: bytes, position: int, size: int, count: int) -> int:
    """Returns how many records from `position` on, at most `count`, have the same length field as the previous record of `size` bytes, as
    in rows of fixed width. Returns 0 for a length field of three bytes or more."""
    length = data[position - size : position - size + 2]
    if data[position : position + 1] != length[:1] or len(length) < 2:
        return 0
    end = position + size * count
    lows = data[position:end:size]
    run = len(lows) - len(lows.lstrip(length[:1]))
    if length[0] < 128:
        return run
    highs = data[position + 1 : end : size]
    return 0 if length[1] >= 128 else min(run, len(highs) - len(highs.lstrip(length[1:])))


def _read_fields(buffer: bytes, group: Sequence[_Section], bounds: _Bounds) -> _Fields:
    data = np.frombuffer(buffer, np.uint8)
    ends = bounds.ends
    lengths, at = read_varints(data, bounds.starts)
    if (lengths & 1).any() or (at + (lengths >> 1) != ends).any():
        raise WireError("a record does not end where it says")
    times, at = read_varints(data, at + 1, 64)
    offset_deltas, at = read_varints(data, at)
    keys = read_blobs(data, at, ends)
    values = read_blobs(data, keys.stops, ends)
    headers_at = values.stops
    if ((data[headers_at] == 0) & (headers_at + 1 != ends)).any():
        raise WireError("a record is not as long as it says")
    offsets = np.array([section.header.base_offset for section in group], np.int64)[bounds.sections] + unzigzag(offset_deltas)
    times_us, time_types = _timestamps(group, bounds.sections, unzigzag(times))
    return _Fields(offsets, times_us, time_types, keys, values, headers_at, ends)


def _timestamps(group: Sequence[_Section], sections: Any, deltas: Any) -> tuple[Any, Any]:
    """Returns the microseconds since 1970 and the timestamp type of each record.

    With log append time a record's own timestamp is the client's, and the batch header has the broker's. Timestamps out of range are
    replaced by the nearest value that 64 bits of microseconds can hold.
    """
    headers = [section.header for section in group]
    types = np.array([header.timestamp_type for header in headers], np.int32)
    bases = np.array([header.max_timestamp if header.timestamp_type else header.base_timestamp for header in headers], np.int64)
    if types.any():
        deltas = np.where(types[sections] == LOG_APPEND_TIME, 0, deltas)
    times = bases[sections] + deltas
    if max(int(bases.max()), -int(bases.min()), int(deltas.max()), -int(deltas.min())) > _MS_SAFE:
        about = bases[sections].astype(np.float64) + deltas.astype(np.float64)
        times = np.where(about > _MS_MAX * 2, _MS_MAX, np.where(about < -_MS_MAX * 2, -_MS_MAX, np.clip(times, -_MS_MAX, _MS_MAX)))
    return times * 1000, types[sections]


def _build_rows(partition: TopicPartition, buffer: bytes, fields: _Fields, schema: Any) -> Any:
    count = len(fields.offsets)
    make: dict[str, Callable[[], Any]] = {
        "key": lambda: take_blobs(buffer, fields.keys),
        "value": lambda: take_blobs(buffer, fields.values),
        "topic": lambda: pa.repeat(pa.scalar(partition.topic), count),
        "partition": lambda: pa.array(np.full(count, partition.partition, np.int32)),
        "offset": lambda: pa.array(fields.offsets),
        "timestamp": lambda: pa.array(fields.times_us).view(_TIMESTAMP),
        "timestampType": lambda: pa.array(fields.time_types),
        "headers": lambda: read_headers(buffer, fields.headers_at, fields.ends),
    }
    return pa.RecordBatch.from_arrays([make[name]() for name in schema.names], schema=schema)
