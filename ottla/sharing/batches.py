"""Merges changes into a share partition's batches: a sorted, disjoint list of as few batches as possible.

The rule is Kafka's, for each offset: the change with the larger delivery count wins; with equal counts the larger state wins. The count of
a record only rises, and with an equal count its state only rises, in the order available, acknowledged, archived. Therefore neither the
order of changes nor a repeated change matters. Neighbours with equal state and count are joined. Offsets below the start offset are
dropped, even if they are only a part of a batch.

Invariant: `merge` keeps this form of the list. Apart from a copy of the list, its cost depends on the changes, not on the length of the
list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ottla.base.share_state import StateBatch

Batches = tuple[StateBatch, ...]


def merge(batches: Sequence[StateBatch], changes: Sequence[StateBatch], start_offset: int) -> Batches:
    """Returns the batches after the changes; a negative `start_offset` drops nothing."""
    if not batches and len(changes) <= 1:
        return tuple(change for change in _cut(list(changes), start_offset) if change.first_offset <= change.last_offset)
    merged = list(batches)
    for change in changes:
        if change.first_offset <= change.last_offset:
            _lay_over(merged, change)
    return tuple(_cut(merged, start_offset))


def _lay_over(batches: list[StateBatch], change: StateBatch) -> None:
    """Inserts one batch in place. Direct neighbours are included, because they may be joined with it."""
    first, last, state, count = change
    low = bisect_left(batches, first - 1, key=_last_offset)
    high = bisect_right(batches, last + 1, key=_first_offset)
    if low >= high:
        batches.insert(low, change)
        return
    weight = (count, state)
    pieces: list[StateBatch] = []
    position = first  # start of the remaining part of the change
    for batch in batches[low:high]:
        begin, end = max(batch.first_offset, first), min(batch.last_offset, last)
        if begin > end:  # only adjacent
            if batch.first_offset > last and position <= last:
                _put(pieces, position, last, state, count)
                position = last + 1
            _put(pieces, *batch)
            continue
        _put(pieces, position, begin - 1, state, count)
        _put(pieces, batch.first_offset, begin - 1, batch.delivery_state, batch.delivery_count)
        if (batch.delivery_count, batch.delivery_state) > weight:
            _put(pieces, begin, end, batch.delivery_state, batch.delivery_count)
        else:
            _put(pieces, begin, end, state, count)
        position = end + 1
        if batch.last_offset > last:
            _put(pieces, last + 1, batch.last_offset, batch.delivery_state, batch.delivery_count)
    _put(pieces, position, last, state, count)
    batches[low:high] = pieces


def _put(pieces: list[StateBatch], first: int, last: int, state: int, count: int) -> None:
    """Appends a run of offsets, joined to the previous one if it is equal; ignores an empty run."""
    if first > last:
        return
    if pieces:
        before = pieces[-1]
        if before.last_offset + 1 == first and before.delivery_state == state and before.delivery_count == count:
            pieces[-1] = StateBatch(before.first_offset, last, state, count)
            return
    pieces.append(StateBatch(first, last, state, count))


def _cut(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    if start_offset < 0 or not batches or batches[0].first_offset >= start_offset:
        return batches
    kept = batches[bisect_left(batches, start_offset, key=_last_offset) :]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset
