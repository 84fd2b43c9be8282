"""Joins the parts of many encoded values: each part is a binary array with one element for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.varints import Varints, join_varints

EMPTY = pa.scalar(b"", pa.binary())


def join(pieces: Sequence[Any]) -> Any:
    """Joins the parts of each value; null adds nothing."""
    if len(pieces) == 1 and not pieces[0].null_count:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, EMPTY, null_handling="replace", null_replacement="")


def numbers_of(array: Any) -> Any:
    """Returns numbers or truth values as an array of numpy."""
    return array.to_numpy(zero_copy_only=False)


def of_longs(numbers: Any) -> Any:
    """Returns each number as a zigzag varint."""
    return join_varints([Varints.of(numbers)], len(numbers))


def of_fixed(numbers: Any) -> Any:
    """Returns each number, or row of bytes, as it is in memory."""
    count = len(numbers)
    width = numbers.nbytes // count if count else 0
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width)), pa.py_buffer(numbers)]
    )


def of_lists(lists: Any, pieces: Sequence[Any]) -> list[Any]:
    """Returns one block for each list, and the end of blocks. `pieces` are the parts of the items."""
    counts = numbers_of(pc.list_value_length(lists)).astype(np.int64)
    firsts = np.append(0, np.cumsum(counts))
    joined = join(pieces) if pieces else of_fixed(np.zeros((int(firsts[-1]), 0), np.uint8))
    _, ends, data = joined.buffers()
    of_items = np.frombuffer(ends, np.int32, len(joined) + 1, 4 * joined.offset) if len(joined) else np.zeros(1, np.int32)
    blocks = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(of_items[firsts]), data])
    is_empty = counts == 0
    count_pieces = of_longs(counts)
    end = pc.if_else(pa.array(is_empty), EMPTY, pa.scalar(b"\0", pa.binary()))
    return [count_pieces, blocks, end]
