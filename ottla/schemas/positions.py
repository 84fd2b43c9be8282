"""Reads fields of many encoded values at once, without a Python object per value: numpy reads one field of all values in each step.

`Values` has the bytes of a column, `Places` the position in each value that is read next. If a field would end after its value, the value
is marked as bad, and reading continues at the value's end. Whatever is read of a bad value is dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.arrow.blobs import Blobs, take_blobs

_PADDING = 16
"""Zero bytes after the last value, so that a number at its end can be read as eight bytes, and a varint of ten bytes ends."""
_HIGH = np.uint64(0x8080808080808080)
_FEW = 8
"""Bytes of a varint that one read of eight bytes covers. Longer ones are read byte by byte."""


class Values:
    """The bytes of a binary array without nulls, and which of its values do not fit."""

    def __init__(self, values: Any) -> None:
        count = len(values)
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32, count + 1, 4 * values.offset).astype(np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        self.data = np.zeros(last - first + _PADDING, np.uint8)
        if last > first:
            self.data[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
        bounds -= first
        self.is_bad = np.zeros(count, np.bool_)
        self.places = Places(bounds[:-1].copy(), bounds[1:], np.arange(count))

    def finish(self) -> None:
        """Marks values with bytes after their last field as bad."""
        self.is_bad |= self.places.at != self.places.ends

    def mark(self, places: Places, is_bad: Any) -> None:
        """Marks the values of these places as bad, and moves the places to the ends of their values."""
        if is_bad.any():
            self.is_bad[places.rows[is_bad]] = True
            places.at[is_bad] = places.ends[is_bad]

    def fixed(self, places: Places, dtype: str) -> Any:
        """Reads a number of fixed size (little-endian numpy type) at each place."""
        width = np.dtype(dtype).itemsize
        found = self._as(dtype)[places.at]
        places.at += width
        self.mark(places, places.at > places.ends)
        return found

    def longs(self, places: Places) -> Any:
        """Reads a zigzag varint of at most 64 bits at each place, as int64."""
        eight = self._as("<u8")[places.at]
        stop = ~eight & _HIGH
        stop &= -stop
        covered = stop | (stop - np.uint64(1))
        long = np.flatnonzero(stop == 0)
        eight &= covered & ~_HIGH
        for low, high, shift in _GROUPS:
            eight = (eight & low) | ((eight & high) >> shift)
        places.at += np.bitwise_count(covered) >> 3
        if len(long):
            self._read_long(places, eight, long)
        self.mark(places, places.at > places.ends)
        return (eight >> np.uint64(1)).view(np.int64) ^ -(eight & np.uint64(1)).view(np.int64)

    def _read_long(self, places: Places, numbers: Any, chosen: Any) -> None:
        """Reads the chosen varints, which have more than eight bytes, from their first byte. The caller has moved the places by eight bytes
        already.
        """
        numbers[chosen] = 0
        at = places.at[chosen] - _FEW
        for place in range(10):
            byte = self.data[at + place]
            is_in = np.ones(len(chosen), np.bool_) if place <= _FEW else self.data[at + _FEW] >= 128
            numbers[chosen] |= np.where(is_in, (byte & 127).astype(np.uint64) << np.uint64(7 * place), np.uint64(0))
        is_ten = self.data[at + _FEW] >= 128
        places.at[chosen] = at + np.where(is_ten, 10, 9)
        is_wrong = np.zeros(len(places.at), np.bool_)
        is_wrong[chosen] = is_ten & (self.data[at + 9] > 1)
        self.mark(places, is_wrong)

    def blobs(self, places: Places, sizes: Any) -> Blobs:
        """Reads `sizes` bytes at each place."""
        self.mark(places, (sizes < 0) | (sizes > places.ends - places.at))
        starts = places.at.copy()
        places.at += np.minimum(np.maximum(sizes, 0), places.ends - starts)
        return Blobs(starts, places.at.copy(), None)

    def binary(self, blobs: Blobs) -> Any:
        """Returns the bytes of the blobs, which are in order, as a binary array."""
        return take_blobs(pa.py_buffer(self.data), blobs) if len(blobs.starts) else pa.array([], pa.binary())

    def _as(self, dtype: str) -> Any:
        """Returns the number that begins at each byte."""
        kind = np.dtype(dtype)
        return np.ndarray(len(self.data) - kind.itemsize + 1, kind, buffer=self.data, strides=(1,))


_GROUPS = [
    tuple(map(np.uint64, group))
    for group in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
]
"""Steps that join the seven bits of each byte: lower part, upper part, and how far it moves."""


class Places:
    """Where reading continues in some values: the position, the end of its value, and the number of the value."""

    def __init__(self, at: Any, ends: Any, rows: Any) -> None:
        self.at = at
        self.ends = ends
        self.rows = rows

    def __len__(self) -> int:
        return len(self.at)

    def select(self, chosen: Any) -> Places:
        """Returns a copy of some places. `store` writes their positions back."""
        return Places(self.at[chosen], self.ends[chosen], self.rows[chosen])

    def store(self, chosen: Any, places: Places) -> None:
        self.at[chosen] = places.at
