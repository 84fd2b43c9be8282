"""Files that let a recovery skip the log below its recovery point. They are written before the recovery point, while the log serves.

They are the indexes of the active segment and a snapshot of the producers; of many producers the snapshot is made in steps. Losing them
costs a slower recovery.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from ottla.storage.producers import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.snapshots import AT_ONCE_MAX, ProducerSnapshots

UNAIDED_BYTES_MAX = 1 << 20


class ServedLog(Protocol):
    """The parts of a log (`log.py`) that this module needs."""

    active: Segment
    log_end_offset: int
    producers: ProducerStates
    segments: list[Segment]
    snapshots: ProducerSnapshots


def are_due(log: ServedLog, unaided_bytes_max: int) -> bool:
    """Whether more than so many bytes were appended since the newest snapshot, or a segment was begun without one."""
    active, newest = log.active, log.snapshots.newest
    if newest < active.base_offset and len(log.segments) > 1 and len(log.producers) > AT_ONCE_MAX:
        return True
    aided = active.position_of(newest) if newest > active.base_offset else 0
    return active.size - aided > unaided_bytes_max


def removable_count(log: ServedLog) -> int:
    """How many segments, from the oldest on, may go without taking away what is known of the producers in them after a crash (I20)."""
    newest, count = log.snapshots.newest, len(log.segments)
    if len(log.producers) <= AT_ONCE_MAX or newest == log.log_end_offset:
        return count  # a roll writes a snapshot where there is none
    return max(0, bisect_right(log.segments, newest, key=lambda segment: segment.base_offset) - 1)


def write_new_entries(segment: Segment) -> None:
    """Brings the index files of a segment up to date that was only appended to. A file that lacks no entry is not opened."""
    if not segment.has_index_files:
        segment.write_indexes()
    for index in (segment.index, segment.times):
        if len(index) > index.written:
            index.write(segment.disk)


def write(log: ServedLog, unaided_bytes_max: int) -> None:
    """Does nothing while less than that is unaided; 0 brings everything up to date."""
    if are_due(log, unaided_bytes_max):
        write_new_entries(log.active)
        log.snapshots.write(log.log_end_offset, log.producers)
        log.snapshots.remove_strays(segment.base_offset for segment in log.segments)


def in_steps(log: ServedLog) -> Iterator[None]:
    """The same for a log that serves on between the steps; it must not be taken further once the log is deleted or elsewhere."""
    if len(log.producers) <= AT_ONCE_MAX:
        write(log, UNAIDED_BYTES_MAX)
    elif are_due(log, UNAIDED_BYTES_MAX):
        write_new_entries(log.active)
        yield from log.snapshots.write_in_steps(log.log_end_offset, log.producers)
        log.snapshots.remove_strays(segment.base_offset for segment in log.segments)
