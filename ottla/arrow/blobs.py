"""Keys, values and headers of many records at once: finds their bytes, and copies them into Arrow.

pyarrow copies the bytes once: it sees the batch's bytes as an array whose elements are alternately a blob and the gap after it, and takes
every second element. Headers are read in rounds: the first header of each record, then the second, and so on. When few records have headers
left, these are read one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.arrow.varints import read_varints
from ottla.client import WireError
from ottla.wire.record_validation import read_zigzag

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
"""The type of the column `headers`, as Spark's Kafka connector has it."""

_FEW = 16
"""Up to this many records are read one by one, which is faster than the array operations."""


class Blobs(NamedTuple):
    """The positions of the keys or values of records. `is_null` is None if no element is null."""

    starts: Any
    stops: Any
    is_null: Any

    def store(self, places: Any, found: Blobs) -> None:
        """Copies other blobs to the indexes `places`. `is_null` of this object must not be None."""
        self.starts[places], self.stops[places] = found.starts, found.stops
        if found.is_null is not None:
            self.is_null[places] = found.is_null

    def select(self, kept: Any) -> Blobs:
        return Blobs(self.starts[kept], self.stops[kept], None if self.is_null is None else self.is_null[kept])


def read_blobs(data: Any, at: Any, ends: Any) -> Blobs:
    """Reads the blobs whose length fields are at `at`. A length of -1 (1 as zigzag) means null. Raises `WireError` for another negative
    length, and for a blob that does not end before the last byte of its record."""
    lengths, starts = read_varints(data, at)
    odd = (lengths & 1).astype(np.bool_)
    has_null = odd.any()
    if has_null and (lengths[odd] != 1).any():
        raise WireError("a key or value of negative length")
    stops = starts + (lengths >> 1)
    if (stops >= ends).any():
        raise WireError("a key or value is longer than its record")
    return Blobs(starts, stops, odd if has_null else None)


def take_blobs(buffer: bytes, blobs: Blobs) -> Any:
    """Copies the blobs into a binary array. They must be in order and not overlap."""
    count = len(blobs.starts)
    if blobs.is_null is not None and blobs.is_null.all():
        return pa.nulls(count, pa.binary())
    ends = np.empty(2 * count + 1, np.int32)
    ends[0:-1:2] = blobs.starts
    ends[1::2] = blobs.stops
    ends[-1] = blobs.stops[-1]
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(ends), pa.py_buffer(buffer)])
    return both.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=blobs.is_null))


def read_headers(buffer: bytes, at: Any, ends: Any) -> Any:
    """Reads the column `headers` of records whose header counts are at `at`. A record without headers gets null, as in Spark's connector.
    """
    data = np.frombuffer(buffer, np.uint8)
    counts, at = read_varints(data, at)
    if (counts & 1).any() or (counts > ends - at).any():
        # A header takes two bytes or more, and a count in zigzag form is twice the number of headers.
        raise WireError("a record with more headers than it has bytes for")
    counts >>= 1
    firsts = np.append(0, np.cumsum(counts))
    keys, values = _read_entries(buffer, at, ends, counts, firsts)
    columns = [_as_strings(take_blobs(buffer, keys)), take_blobs(buffer, values)]
    entries = pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(firsts.astype(np.int32)), entries, mask=pa.array(counts == 0))


def _as_strings(keys: Any) -> Any:
    """Casts keys to strings; invalid UTF-8 becomes the replacement character, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _read_entries(buffer: bytes, at: Any, ends: Any, counts: Any, firsts: Any) -> tuple[Blobs, Blobs]:
    data = np.frombuffer(buffer, np.uint8)
    total = int(firsts[-1])
    keys, values = (Blobs(np.empty(total, np.int64), np.empty(total, np.int64), np.zeros(total, np.bool_)) for _ in range(2))
    turn = 0
    records = np.flatnonzero(counts)
    while len(records) > _FEW:
        places = firsts[records] + turn
        key = read_blobs(data, at[records], ends[records])
        value = read_blobs(data, key.stops, ends[records] + 1)
        keys.store(places, key)
        values.store(places, value)
        at[records] = value.stops
        turn += 1
        records = records[counts[records] > turn]
    for record in records.tolist():
        at[record] = _read_rest(buffer, int(at[record]), range(int(firsts[record]) + turn, int(firsts[record + 1])), keys, values)
    if keys.is_null is not None and keys.is_null.any():
        raise WireError("a header without a key")
    if (at[counts > 0] != ends[counts > 0]).any():
        raise WireError("a record is not as long as it says")
    return keys, values


def _read_rest(buffer: bytes, at: int, places: range, keys: Blobs, values: Blobs) -> int:
    size = len(buffer)
    for place in places:
        for blobs in (keys, values):
            length, start = read_zigzag(buffer, at)
            at = start + (length >> 1)
            if at > size or (length & 1 and length != 1):
                raise WireError("a header is longer than its record")
            blobs.starts[place], blobs.stops[place], blobs.is_null[place] = start, at, length & 1
    return at
