"""Files that let a recovery skip the log below its recovery point: the indexes of the active segment and a snapshot of the producers. They
are written before the recovery point, while the log is served. The snapshot of many producers is made in steps. Without these files
recovery is slower.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from ottla.storage.producers import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.snapshots import AT_ONCE_MAX, ProducerSnapshots

UNAIDED_BYTES_MAX = 1 << 20
"""A checkpoint writes new files if more bytes of the active segment follow the newest snapshot. A recovery reads these bytes."""


class ServedLog(Protocol):
    """The parts of a log (`log.py`) that this module needs."""

    active: Segment
    log_end_offset: int
    producers: ProducerStates
    segments: list[Segment]
    snapshots: ProducerSnapshots


def are_due(log: ServedLog, unaided_bytes_max: int) -> bool:
    """Whether more than `unaided_bytes_max` bytes of the active segment follow the newest snapshot, or the segment was begun without a
    snapshot because there were too many producers.
    """
    active, newest = log.active, log.snapshots.newest
    if newest < active.base_offset and len(log.segments) > 1 and len(log.producers) > AT_ONCE_MAX:
        return True
    aided = active.position_of(newest) if newest > active.base_offset else 0
    return active.size - aided > unaided_bytes_max


def removable_count(log: ServedLog) -> int:
    """Returns how many segments, from the oldest on, may be removed so that a recovery after a crash still knows their producers (I20)."""
    newest, count = log.snapshots.newest, len(log.segments)
    if len(log.producers) <= AT_ONCE_MAX or newest == log.log_end_offset:
        return count  # a roll writes a missing snapshot
    return max(0, bisect_right(log.segments, newest, key=lambda segment: segment.base_offset) - 1)


def write_new_entries(segment: Segment) -> None:
    """Writes the new index entries of a segment that was only appended to. A file without new entries is not opened."""
    if not segment.has_index_files:
        segment.write_indexes()
    for index in (segment.index, segment.times):
        if len(index) > index.written:
            index.write(segment.disk)


def write(log: ServedLog, unaided_bytes_max: int) -> None:
    """Writes the files in one step if they are due (`are_due`). Then also removes snapshots that are no longer needed."""
    if are_due(log, unaided_bytes_max):
        write_new_entries(log.active)
        log.snapshots.write(log.log_end_offset, log.producers)
        log.snapshots.remove_strays(segment.base_offset for segment in log.segments)


def in_steps(log: ServedLog) -> Iterator[None]:
    """Writes the files in steps if they are due (`UNAIDED_BYTES_MAX`); a small snapshot is one step. The log is served between the steps.
    The caller must not continue after the log was deleted or moved.
    """
    if len(log.producers) <= AT_ONCE_MAX:
        write(log, UNAIDED_BYTES_MAX)
    elif are_due(log, UNAIDED_BYTES_MAX):
        write_new_entries(log.active)
        yield from log.snapshots.write_in_steps(log.log_end_offset, log.producers)
        log.snapshots.remove_strays(segment.base_offset for segment in log.segments)
