"""Checks segments for damage, piece by piece in a thread, with a pause after each piece if the rate is limited.

Compaction, retention, a truncation or a repair may replace the segment during the check; then the result is dropped. If the check finds no
damage, it also rebuilds a time index that lacks records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import StorageError
from ottla.base.ports import Disk, Threads, Timers
from ottla.replication.partition import Partition
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.segment import Segment
from ottla.storage.segment_check import SegmentCheck
from ottla.storage.time_index_check import TimeIndexCheck

log = logging.getLogger("ottla.repair")

PIECE_BYTES = 1 << 20
URGENT_PIECE_BYTES = 16 << 20

Done = Callable[[SegmentCheck | None], object]


class SegmentChecks:
    """The checks of one broker."""

    def __init__(self, disk: Disk, timers: Timers, threads: Threads) -> None:
        self._disk = disk
        self._timers = timers
        self._threads = threads
        self._is_stopped = False
        self.batches = 0
        """Batches checked so far."""

    def stop(self) -> None:
        """Stops all checks after their current piece; `done` is no longer called."""
        self._is_stopped = True

    def run(self, partition: Partition, segment: Segment, done: Done, *, bytes_per_second: int = 0) -> None:
        """Checks a sealed segment, or the part of the active segment that was written before this call. Calls `done` with the check, or
        with None if there is no result; after `stop` it does not call `done`. A failed read takes the replica offline. A rate of 0 is no
        limit.
        """
        own = partition.log
        end_offset = segment.end_offset if segment.is_sealed else own.log_end_offset
        may_end_early = segment.base_offset < own.compacted_end
        epochs, times = LeaderEpochs(own.epochs.entries()), TimeIndexCheck(self._disk, segment)
        check = SegmentCheck(
            self._disk, segment.path(""), segment.base_offset, end_offset, segment.size, epochs=epochs, times=times,
            may_end_early=may_end_early,
        )  # fmt: skip
        as_it_was, size = (own.directory, segment.end_offset), segment.size
        piece_bytes = PIECE_BYTES if bytes_per_second else URGENT_PIECE_BYTES

        def is_same() -> bool:
            if not partition.is_online or segment not in own.segments or as_it_was != (own.directory, segment.end_offset):
                return False
            return segment.size == size if segment.is_sealed else segment.size >= size  # An active segment grows.

        def piece() -> None:
            if self._is_stopped:
                return
            if is_same():
                self._threads.run(work, after)
            else:
                done(None)

        def work() -> bool | StorageError:
            try:
                return check.run(piece_bytes)
            except StorageError as error:
                return error

        def after(result: bool | StorageError) -> None:
            if self._is_stopped:
                return
            if isinstance(result, StorageError):
                partition.fail(result)
                done(None)
            elif not is_same():
                done(None)
            elif result and bytes_per_second:
                self._timers.call_later(max(1, piece_bytes * 1000 // bytes_per_second), piece)
            elif result:
                piece()
            else:
                self.batches += check.batches
                done(check if check.damaged or _mend_times(partition, segment, times) else None)

        piece()


def _mend_times(partition: Partition, segment: Segment, times: TimeIndexCheck) -> bool:
    """Rebuilds the time index of the segment if it lacks records. Returns False if the disk fails, which takes the replica offline."""
    try:
        if times.mend(segment):
            text = "%s: the time index of segment %d lacks records; made it again"
            log.warning(text, partition.topic_partition, segment.base_offset)
    except StorageError as error:
        partition.fail(error)
        return False
    return True
