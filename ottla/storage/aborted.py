"""The aborted transactions of a segment: the `.txnindex` file in Kafka's format, one entry an aborted transaction.

An entry is version (int16, 0), producer id, first offset, last offset (the abort marker's) and the last stable offset at the moment of
the abort, 34 bytes in the order of markers. A reader of committed data is given every aborted transaction that overlaps its range; the
last stable offset stops the search: an aborted transaction that began below the range's end and ended later would have held the last
stable offset back, so once an entry's last stable offset has reached the range's end, no later entry overlaps it.

Invariant: the index stands beside the segment that holds the marker, so index and records are kept and deleted together.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from ottla.base.errors import StorageError

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is its abort marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transaction: AbortedTransaction) -> bytes:
    return _ENTRY.pack(VERSION, *transaction)


def decode_aborted(data: bytes, path: str) -> list[AbortedTransaction]:
    """All entries of a file; raises `StorageError` where it cannot be one (the index is then rebuilt from the log)."""
    if len(data) % ENTRY_BYTES:
        raise StorageError(f"transaction index {path} has {len(data)} bytes, not a multiple of {ENTRY_BYTES}", path)
    entries = []
    last_offset = -1
    for version, producer_id, first_offset, marker_offset, last_stable_offset in _ENTRY.iter_unpack(data):
        if version != VERSION or first_offset > marker_offset or marker_offset <= last_offset:
            raise StorageError(f"transaction index {path} has a damaged entry of producer {producer_id} at {first_offset}-{marker_offset}")
        last_offset = marker_offset
        entries.append(AbortedTransaction(producer_id, first_offset, marker_offset, last_stable_offset))
    return entries


def size_below(entries: Iterable[AbortedTransaction], end_offset: int) -> int:
    """To how many bytes the file must be cut when the log is truncated to `end_offset`."""
    kept = 0
    for entry in entries:
        if entry.last_offset >= end_offset:
            break
        kept += ENTRY_BYTES
    return kept


def collect_aborted(entries: Iterable[AbortedTransaction], first_offset: int, end_offset: int, into: list[tuple[int, int]]) -> bool:
    """Adds (producer id, first offset) of each one that overlaps [first_offset, end_offset); True when no later segment has more."""
    for entry in entries:
        if entry.last_offset >= first_offset and entry.first_offset < end_offset:
            into.append((entry.producer_id, entry.first_offset))
        if entry.last_stable_offset >= end_offset:
            return True
    return False
