"""Reads and writes the zigzag varints of many records at once: one varint at each position of an array, and whole columns of numbers.

Both process one byte of all records per step, so the number of steps is the length in bytes of the longest number. Finding where each
record of a batch begins needs a loop (`decode.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.client import WireError

_CONTINUED = 128


def read_varints(data: Any, at: Any, bits: int = 32) -> tuple[Any, Any]:
    """Reads the varint at each position. Returns the numbers, still in zigzag form, and the position after each number.

    `data` is an array of uint8, `at` of int64. The numbers are int64, or uint64 for `bits` = 64. A position beyond the end raises
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
        # `number` still contains the continuation bit of the previous byte, as 1 << shift.
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
    return (number >> 1).astype(np.int64) ^ -(number & 1).astype(np.int64)


def zigzag(number: Any) -> Any:
    number = number.astype(np.int64, copy=False)
    return (number << 1 ^ number >> 63).view(np.uint64)


def varint_sizes(number: Any) -> Any:
    """Returns the size of each number in zigzag form, in bytes (int64)."""
    sizes = np.ones(len(number), np.int64)
    largest = int(number.max(initial=0))
    for shift in range(7, 64, 7):
        if largest >> shift == 0:
            break
        sizes += number >= 1 << shift
    return sizes


class Varints(NamedTuple):
    """A field of many records: numbers in zigzag form and their sizes in bytes; plain ints if all records have the same."""

    numbers: Any
    sizes: Any

    @classmethod
    def of(cls, numbers: Any) -> Varints:
        numbers = zigzag(numbers)
        return cls(numbers, varint_sizes(numbers))


def join_varints(fields: Sequence[Varints], count: int) -> Any:
    """Returns a pyarrow binary array of `count` elements: the fields of each record, concatenated."""
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
