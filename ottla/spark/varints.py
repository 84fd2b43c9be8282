"""Zigzag varints of many records at once: reads one at each of an array of positions, and encodes columns of numbers side by side.

Both work a byte at a time over all records together, so they take as many steps as the longest number has bytes.

Left out: where each record of a batch begins, which only a loop can find (`decode.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.client import WireError

_CONTINUED = 128


def read_varints(data: Any, at: Any, bits: int = 32) -> tuple[Any, Any]:
    """The varint at each position, still in zigzag form, and where each ends.

    `data` is an array of uint8, `at` one of int64; the numbers are int64, or uint64 for `bits` = 64. A position behind the end raises
    IndexError, a number of more than `bits` bits WireError.
    """
    byte = data[at]
    number = byte.astype(np.uint64 if bits > 63 else np.int64)
    at = at + 1
    shift = 7
    continued = np.flatnonzero(byte >= _CONTINUED)
    while len(continued):
        every = len(continued) == len(at)
        high = data[at] if every else data[at[continued]]
        if shift + 7 > bits and (high >= 1 << (bits - shift)).any():
            raise WireError("a varint in a record is too long")
        # The continuation bit of the byte before stands in `number` as 1 << shift.
        more = (high.astype(number.dtype) - 1) << shift
        if every:
            number += more
            at += 1
        else:
            number[continued] += more
            at[continued] += 1
        continued = continued[high >= _CONTINUED]
        shift += 7
    return number, at


def unzigzag(number: Any) -> Any:
    """Signed numbers (int64) from their zigzag form."""
    return (number >> 1).astype(np.int64) ^ -(number & 1).astype(np.int64)


def zigzag(number: Any) -> Any:
    """The zigzag form (uint64) of signed numbers."""
    number = number.astype(np.int64, copy=False)
    return (number << 1 ^ number >> 63).view(np.uint64)


def varint_sizes(number: Any) -> Any:
    """How many bytes each number in zigzag form takes (int64)."""
    sizes = np.ones(len(number), np.int64)
    largest = int(number.max(initial=0))
    for shift in range(7, 64, 7):
        if largest >> shift == 0:
            break
        sizes += number >= 1 << shift
    return sizes


class Varints(NamedTuple):
    """A field of many records: numbers in zigzag form and how many bytes each takes; plain ints if all records have the same."""

    numbers: Any
    sizes: Any

    @classmethod
    def of(cls, numbers: Any) -> Varints:
        """The field that holds these signed numbers."""
        numbers = zigzag(numbers)
        return cls(numbers, varint_sizes(numbers))


def join_varints(fields: Sequence[Varints], count: int) -> Any:
    """A pyarrow binary array of `count` elements: the fields of each record behind one another, without a byte between them."""
    widths = [int(np.max(field.sizes, initial=0)) for field in fields]
    room = np.empty((count, sum(widths)), np.uint8)
    is_kept = np.ones(room.shape, np.bool_)
    ends = np.zeros(count + 1, np.int32)
    column = 0
    for (number, size), width in zip(fields, widths, strict=True):
        for place in range(width):
            byte = number >> 7 * place
            is_last = size <= place + 1
            room[:, column] = np.where(is_last, byte & 127, byte & 127 | _CONTINUED)
            is_kept[:, column] = size > place
            column += 1
    np.cumsum(sum(field.sizes for field in fields) + np.zeros(count, np.int64), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(room[is_kept])])
