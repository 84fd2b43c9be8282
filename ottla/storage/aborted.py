"""The aborted transactions of a segment: the `.txnindex` file in Kafka's format, one entry for each aborted transaction.

An entry has 34 bytes: version (int16, 0), producer id, first offset, last offset (the abort marker's) and the last stable offset at the
moment of the abort. Entries are in the order of the markers. A reader of committed data gets every aborted transaction that overlaps its
range. The search ends at an entry whose last stable offset has reached the range's end, because no later entry overlaps the range: such a
transaction was open at that moment, and would have kept the last stable offset lower.

Invariants: the index belongs to the segment that holds the marker, so index and records are kept and deleted together. A search
reads the entries from the first marker in the range on, and no entries of earlier markers. An entry takes 32 bytes of memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple, Protocol, TypeVar

from ottla.base.errors import StorageError

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is the offset of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(VERSION, *transaction)


class AbortedTransactions:
    """The entries of one segment, in the order of their markers."""

    __slots__ = ("_firsts", "_lasts", "_producers", "_stables")

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._producers, self._firsts, self._lasts, self._stables = array("q"), array("q"), array("q"), array("q")
        for entry in entries:
            self.append(entry)

    def append(self, entry: AbortedTransaction) -> None:
        self._producers.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._lasts.append(entry.last_offset)
        self._stables.append(entry.last_stable_offset)

    def __len__(self) -> int:
        return len(self._lasts)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(AbortedTransaction, self._producers, self._firsts, self._lasts, self._stables)

    def count_below(self, end_offset: int) -> int:
        """Returns the number of entries with a marker below `end_offset`."""
        return bisect_left(self._lasts, end_offset)

    def collect(self, first_offset: int, end_offset: int, into: list[tuple[int, int]]) -> bool:
        """Adds (producer id, first offset) of each transaction that overlaps [first_offset, end_offset). Returns True if no later segment
        can have more of them.
        """
        firsts, stables = self._firsts, self._stables
        for number in range(self.count_below(first_offset), len(firsts)):
            if firsts[number] < end_offset:
                into.append((self._producers[number], firsts[number]))
            if stables[number] >= end_offset:
                return True
        return False


def decode_aborted(data: bytes, path: str) -> AbortedTransactions:
    """Returns all entries of a file. Raises `StorageError` for a damaged file (the caller then rebuilds the index from the log)."""
    if len(data) % ENTRY_BYTES:
        raise StorageError(f"transaction index {path} has {len(data)} bytes, not a multiple of {ENTRY_BYTES}", path)
    entries = AbortedTransactions()
    last_offset = -1
    for version, producer_id, first_offset, marker_offset, last_stable_offset in _ENTRY.iter_unpack(data):
        if version != VERSION or first_offset > marker_offset or marker_offset <= last_offset:
            raise StorageError(f"transaction index {path} has a damaged entry of producer {producer_id} at {first_offset}-{marker_offset}")
        last_offset = marker_offset
        entries.append(AbortedTransaction(producer_id, first_offset, marker_offset, last_stable_offset))
    return entries


class HasAborted(Protocol):
    """The part of `segment.Segment` that is used here."""

    @property
    def has_aborted(self) -> bool: ...


SegmentType = TypeVar("SegmentType", bound=HasAborted)


def overlapping(
    segments: Sequence[SegmentType], first: int, first_offset: int, end_offset: int, of: Callable[[SegmentType], AbortedTransactions]
) -> list[tuple[int, int]]:
    """Returns (producer id, first offset) of every aborted transaction that overlaps the offsets and has its marker in the segments from
    number `first` on."""
    found: list[tuple[int, int]] = []
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.has_aborted and of(segment).collect(first_offset, end_offset, found):
            break
    return found
