"""Reads the log for share partitions: finds the batches of a slice, the batches that may be delivered, and the first offset of a group.

A slice may have megabytes, while a member acquires a few hundred records, so the slice is read in windows, only as far as needed. Control
batches are never delivered. To a group that reads committed data, batches of aborted transactions are not delivered either. Each
transaction in `Aborted` is aborted from its first offset to its producer's marker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from struct import Struct

from ottla.base.settings.sharing import BY_DURATION, duration_ms
from ottla.base.types import NO_OFFSET
from ottla.replication.partition import Partition
from ottla.replication.reads import LATEST
from ottla.sharing.acquisition import LogBatch
from ottla.storage.file_slice import FileSlice
from ottla.storage.time_search import TimeBudget, TimeSearch
from ottla.wire.batch_header import BATCH_OVERHEAD, CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT

WINDOW_BYTES = 1 << 14

_read_prefix = Struct(">qi9xhi16xq").unpack_from
"""Base offset, batch length, attributes, last offset delta, producer id."""
_PREFIX_BYTES = 51
_WITHHELD_BITS = CONTROL_BIT | TRANSACTIONAL_BIT

Aborted = Sequence[tuple[int, int]]
"""(producer id, first offset) of each aborted transaction."""


class LogWalk:
    """Iterates over the batches of a slice. Afterwards `piece` returns a part of the slice by offsets."""

    __slots__ = ("_aborted", "_ends", "_lasts", "_slice")

    def __init__(self, found: FileSlice, aborted: Aborted | None = None) -> None:
        self._slice = found
        self._aborted = sorted(aborted, key=_first_offset) if aborted else None
        self._lasts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[LogBatch]:
        found, read_prefix = self._slice, _read_prefix
        add_last, add_end = self._lasts.append, self._ends.append
        length = found.length
        verdict = BatchVerdict(self._aborted) if self._aborted else None
        position = window_at = 0
        window = b""
        while position + BATCH_OVERHEAD <= length:
            at = position - window_at
            if at + _PREFIX_BYTES > len(window):
                window_at, at = position, 0
                window = found.read_part(position, WINDOW_BYTES)
                if len(window) < _PREFIX_BYTES:
                    return
            base, size, attributes, delta, producer_id = read_prefix(window, at)
            position += size + LOG_OVERHEAD
            if position > length:
                return  # The last batch is incomplete.
            last = base + delta
            add_last(last)
            add_end(position)
            if not attributes & _WITHHELD_BITS:
                yield base, last, True
            elif attributes & CONTROL_BIT:
                if verdict is not None:
                    verdict.end(producer_id, last)
                yield base, last, False
            else:
                yield base, last, verdict is None or not verdict.is_aborted(producer_id, last)

    def piece(self, first_offset: int, last_offset: int) -> FileSlice:
        """Returns the slice of the whole batches with these offsets, which must have been iterated over."""
        lasts, ends = self._lasts, self._ends
        first = bisect_left(lasts, first_offset)
        begin = ends[first - 1] if first else 0
        end = ends[min(bisect_left(lasts, last_offset), len(ends) - 1)]
        found = self._slice
        return FileSlice(found.shared, found.position + begin, end - begin)


class BatchVerdict:
    """Tracks, batch by batch, which producers are within one of their aborted transactions."""

    __slots__ = ("_aborted", "_at", "_producers")

    def __init__(self, aborted: Aborted) -> None:
        self._aborted = aborted
        self._at = 0
        self._producers: set[int] = set()

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        self._go_to(last_offset)
        return producer_id in self._producers

    def end(self, producer_id: int, offset: int) -> None:
        """Ends the producer's transaction at its marker. Its later records belong to another transaction."""
        self._go_to(offset)
        self._producers.discard(producer_id)

    def _go_to(self, offset: int) -> None:
        aborted = self._aborted
        while self._at < len(aborted) and aborted[self._at][1] <= offset:
            self._producers.add(aborted[self._at][0])
            self._at += 1


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]


def find_start(partition: Partition, reset: str, now_ms: int) -> int:
    """Returns the first offset for a group that has not read the partition yet. `now_ms` is wall time. Raises `ApiError`.

    If the wanted time lies in a batch that is too large to be read at once, the group begins with that batch.
    """
    if reset == "earliest":
        return partition.log.log_start_offset
    if reset.startswith(BY_DURATION):
        back_ms = duration_ms(reset.removeprefix(BY_DURATION)) or 0
        search = TimeSearch(partition.topic_partition, budget=TimeBudget(), is_exact=False)
        _, offset, _ = partition.list_offset(max(now_ms - back_ms, 0), 0, search=search)
        if offset != NO_OFFSET:
            return offset
    _, offset, _ = partition.list_offset(LATEST, 0)
    return offset
