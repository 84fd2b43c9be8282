"""Reads the blocks of arrays and maps in many Avro values at once."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ottla.schemas.positions import Places, Values


class Item(Protocol):
    """The type of the items (`avro_columns.Node`). `width` is their size in bytes if they are floating-point numbers, else 0."""

    kind: Any
    width: int

    def read(self, values: Values, places: Places) -> Any: ...

    def skip(self, data: memoryview, at: int) -> int: ...


def read_blocks(values: Values, places: Places, item: Item) -> tuple[Any, Any]:
    """Reads the blocks of arrays or maps, one at each place. Returns the items of all of them, and for each item the number of its place.
    Each round reads the next item of every array that has more items. If only one array is left, each round reads the next item of this
    array.
    """
    owners, items = [np.zeros(0, np.int64)], [pa.array([], item.kind)]
    left = np.zeros(len(places), np.int64)
    active = np.arange(len(places))
    while len(active):
        at_start = active[left[active] == 0]
        if len(at_start):
            left[at_start] = _read_count(values, places, at_start)
            active = active[left[active] > 0]
            if not len(active):
                break
        some = places.select(active)
        found = _read_run(values, some, item, left[active])
        if found is None:
            items.append(item.read(values, some))
            owners.append(active)
            left[active] -= 1
        else:
            items.append(found)
            owners.append(np.repeat(active, left[active]))
            left[active] = 0
        places.store(active, some)
        is_over = values.is_bad[places.rows[active]]
        left[active[is_over]] = 0
        places.at[active[is_over]] = places.ends[active[is_over]]
        active = active[~is_over]
    return np.concatenate(owners), pa.concat_arrays(items)


def _read_count(values: Values, places: Places, chosen: Any) -> Any:
    """Returns the number of items in the next block; 0 ends an array. A negative number is followed by the block's size."""
    some = places.select(chosen)
    counts = values.longs(some)
    negative = np.flatnonzero(counts < 0)
    if len(negative):
        sized = some.select(negative)
        values.longs(sized)
        some.store(negative, sized)
        counts[negative] = -counts[negative]
    is_bad = (counts < 0) | (counts > some.ends - some.at) | values.is_bad[some.rows]
    values.mark(some, is_bad)
    counts[is_bad] = 0
    places.store(chosen, some)
    return counts


def _read_run(values: Values, places: Places, item: Item, counts: Any) -> Any | None:
    """Reads all items of each block at once, if their positions can be found: items of fixed size, or few blocks. Else returns None."""
    if item.width:
        width = item.width
        is_bad = counts * width > places.ends - places.at
        values.mark(places, is_bad)
        firsts = np.cumsum(counts) - counts
        at = np.repeat(places.at, counts) + width * (np.arange(int(counts.sum())) - np.repeat(firsts, counts))
        at[np.repeat(is_bad, counts)] = 0
        places.at += np.where(is_bad, 0, counts * width)
        return item.read(values, Places(at, at + width, np.repeat(places.rows, counts)))
    if len(places) > _FEW or int(counts.max()) <= _FEW:
        return None
    starts = [_starts(values, places, place, item, int(counts[place])) for place in range(len(places))]
    at = np.concatenate(starts)
    return item.read(values, Places(at, np.repeat(places.ends, counts), np.repeat(places.rows, counts)))


_FEW = 16
"""Up to this number of arrays with more items than this, each item is found by itself before all are read: one step for each item would
cost more."""


def _starts(values: Values, places: Places, place: int, item: Item, count: int) -> Any:
    """Returns where each item of a block begins, and moves the place behind the block. If the value is bad, all items begin at its end."""
    data, at, end = memoryview(values.data), int(places.at[place]), int(places.ends[place])
    starts = []
    try:
        for _ in range(count):
            starts.append(at)
            at = item.skip(data, at)
            if at > end:
                raise IndexError
        places.at[place] = at
    except IndexError:
        is_bad = np.zeros(len(places), np.bool_)
        is_bad[place] = True
        values.mark(places, is_bad)
        return np.full(count, end)
    return np.array(starts, np.int64)


def skip_long(data: memoryview, at: int) -> int:
    """Returns the end of the varint at a position."""
    while data[at] > 127:
        at += 1
    return at + 1


def long_at(data: memoryview, at: int) -> tuple[int, int]:
    """Returns the number in the zigzag varint at a position, and the end of the varint."""
    number = shift = 0
    while data[at] > 127:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
    number |= data[at] << shift
    return number >> 1 ^ -(number & 1), at + 1
