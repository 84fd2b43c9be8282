"""Dumps or checks the offset index and the time index of a segment, and compares them with the segment."""

from __future__ import annotations

import os
from bisect import bisect_right
from struct import Struct

from ottla.cli.command import Refused
from ottla.cli.inspect.log_dump import Dump, map_file
from ottla.cli.inspect.log_segments import base_offset_of, batches_of
from ottla.cli.inspect.spans import SpanReader, as_moment
from ottla.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ottla.wire.batch_header import BatchHeader, Buffer

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


def dump_offset_index(dump: Dump, path: str, data: Buffer) -> None:
    base = base_offset_of(path)
    entries = _entries(data, _OFFSET_ENTRY)
    if not entries:
        dump.line(f"{path} is empty.")
        return
    if dump.options.is_checking:
        if len(data) % OFFSET_ENTRY_BYTES or entries[-1][0] <= 0:
            raise Refused(f"{path} is corrupt: {len(data)} bytes, last offset {base + entries[-1][0]}", "CORRUPT_FILE")
        dump.fact("is_sane", True, f"{path} passed sanity check.")
        return
    segment = _segment_beside(dump, path)
    for number, (relative, position) in enumerate(entries):
        offset = base + relative
        batch = None if segment is None else _batch_at(segment, position, path)
        if segment is not None and (batch is None or batch.last_offset != offset):
            found = "nothing" if batch is None else str(batch.last_offset)
            dump.mismatch("Mismatches in :", os.path.abspath(path), f"Index offset: {offset}, log offset: {found}")
        if not dump.options.is_verifying:
            dump.entry(f"offset: {offset} position: {position}", {"offset": offset, "position": position})
            if dump.options.is_hex:
                reader = SpanReader(data, number * OFFSET_ENTRY_BYTES)
                reader.fixed("relative_offset", "i", f"offset {offset}, the last one of the batch at the position")
                reader.fixed("position", "i", "of a batch in the segment")
                dump.spans(reader)


def _entries(data: Buffer, form: Struct) -> list[tuple[int, int]]:
    """Returns the entries of an index, without the zeros at the end of a preallocated file. The first entry may be zero."""
    entries: list[tuple[int, int]] = []
    for first, second in form.iter_unpack(data[: len(data) - len(data) % form.size]):
        if entries and not first and not second:
            break
        entries.append((first, second))
    return entries


def dump_time_index(dump: Dump, path: str, data: Buffer) -> None:
    base = base_offset_of(path)
    entries = _entries(data, _TIME_ENTRY)
    if dump.options.is_checking:
        if len(data) % TIME_ENTRY_BYTES or (entries and entries[-1][0] < entries[0][0]):
            raise Refused(f"{path} is corrupt: {len(data)} bytes, or its timestamps go back", "CORRUPT_FILE")
        dump.fact("is_sane", True, f"{path} passed sanity check.")
        return
    segment = _segment_beside(dump, path)
    positions = _positions_beside(path)
    last = -1
    for number, (timestamp, relative) in enumerate(entries):
        offset = base + relative
        if segment is not None:
            _compare_time(dump, path, segment, positions, (timestamp, offset))
        if last >= timestamp and number:
            line = f"Index timestamp: {timestamp}, Previously indexed timestamp: {last}"
            dump.mismatch("Found out of order timestamp in :", os.path.abspath(path), line)
        last = timestamp
        if not dump.options.is_verifying:
            dump.entry(f"timestamp: {timestamp} offset: {offset}", {"timestamp": timestamp, "offset": offset})
            if dump.options.is_hex:
                reader = SpanReader(data, number * TIME_ENTRY_BYTES)
                reader.fixed("timestamp", "q", as_moment)
                reader.fixed("relative_offset", "i", f"offset {offset}")
                dump.spans(reader)


def _compare_time(dump: Dump, path: str, segment: Buffer, positions: list[tuple[int, int]], entry: tuple[int, int]) -> None:
    timestamp, offset = entry
    index = bisect_right(positions, offset, key=lambda entry: entry[0])
    start = positions[index - 1][1] if index else 0
    batch = next((header for _, header in batches_of(segment, path, start) if header.last_offset >= offset), None)
    if batch is None or batch.max_timestamp != timestamp:
        found = -1 if batch is None else batch.max_timestamp
        line = f"Index timestamp: {timestamp}, log timestamp: {found}"
        dump.mismatch("Found timestamp mismatch in :", os.path.abspath(path), line)


def _segment_beside(dump: Dump, path: str) -> Buffer | None:
    """Returns the segment of an index. Without the segment, prints a note and returns None; with --verify-index-only raises `Refused`."""
    beside = path.rpartition(".")[0] + ".log"
    try:
        return map_file(beside)
    except OSError as error:
        message = f"cannot compare {path} with {beside}: {(error.strerror or str(error)).lower()}"
        if dump.options.is_verifying:
            raise Refused(message, "NO_SUCH_FILE") from None
        dump.output.note(message)
        return None


def _positions_beside(path: str) -> list[tuple[int, int]]:
    """Returns the offset index beside a time index as (offset, position); an empty list if it is missing.

    It saves reading the segment from its beginning for each time entry.
    """
    try:
        with open(path.rpartition(".")[0] + ".index", "rb") as file:
            entries = _entries(file.read(), _OFFSET_ENTRY)
    except OSError:
        return []
    return [(base_offset_of(path) + relative, position) for relative, position in entries]


def _batch_at(segment: Buffer, position: int, path: str) -> BatchHeader | None:
    if not 0 <= position < len(segment):
        return None
    try:
        return next((header for _, header in batches_of(segment, path, position)), None)
    except Refused:
        return None
