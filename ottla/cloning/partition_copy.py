"""Copies one partition of the source into a log on the disk.

Batches are appended as a follower appends them, byte for byte, up to `end`. The source may change meanwhile. If it has deleted records that
are still to be copied, the log restarts empty at the source's new start, as a follower's does. If the source was compacted, a record may be
missing because a newer record of its key is beyond `end`. After an answer with a gap, the end is therefore moved to the high watermark,
unless the end is fixed. The last records of a source have no gaps, because no active segment is compacted.

If the log ends before `end` because compaction has removed the last records, a batch without records fills the rest. Committed offsets up
to `end` are then valid.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.admin import EARLIEST, LATEST
from ottla.client.core.fetching import Fetched
from ottla.client.errors import OffsetOutOfRangeError, RequestTimeoutError
from ottla.cloning.plan import CloneError, PartitionPlan
from ottla.cloning.record_change import RecordChange
from ottla.storage.log import Log
from ottla.storage.offset_checkpoints import LogOffsets
from ottla.wire.batch_header import BatchHeader, iter_batches
from ottla.wire.records import MAGIC, rewrite_batch

FETCH_BYTES = 2 << 20
"""Bytes of one Fetch. Copying 400 MB with 1, 2, 4 and 8 MiB a Fetch took 0.5, 0.7, 0.9 and 1.2 s of CPU; small ones need more round trips.
"""
DELTA_MAX = (1 << 31) - 1
"""The largest last offset delta of a batch (int32)."""

Moved = Callable[[int], object]
"""Called with the number of offsets that were copied since the last call."""


class PartitionCopy:
    """The copy of one partition. The caller closes its log (`directory.closed`)."""

    def __init__(
        self, disk: Disk, directory: str, partition: TopicPartition, topic_id: bytes, config: LogConfig, bounds: PartitionPlan,
        *, now_ms: int, has_fixed_end: bool, change: RecordChange | None, noted: LogOffsets | None = None,
    ) -> None:  # fmt: skip
        """Opens the log, or creates it. Records that were copied before are checked, from the recovery point of `noted` on, and a torn end
        is cut. Raises `StorageError`."""
        self.partition = partition
        self.topic_id = topic_id
        self.end = bounds.end
        self.leader_epoch = bounds.leader_epoch
        self.notes: list[str] = []
        self._has_fixed_end = has_fixed_end
        self._change = change
        self._disk = disk
        start, recovery_point = bounds.start, 0
        if noted is not None and noted.topic_id == topic_id:
            start, recovery_point = max(start, noted.log_start_offset), noted.recovery_point
        self.log = Log.open(
            disk, f"{directory}/{partition}", partition, config, now_ms=now_ms, was_clean=False, recovery_point=recovery_point,
            log_start_offset=start, topic_id=topic_id,
        )  # fmt: skip
        self.position = self.log.log_end_offset
        """The offset of the source to read next. It is after the log's end if the source has a gap there."""
        self._is_continued = self.position > bounds.start

    @property
    def open_producers(self) -> dict[int, int]:
        """The epochs of producers with an open transaction in the log, by producer id."""
        return {one.producer_id: one.epoch for one in self.log.producers.active() if one.transaction_first_offset >= 0}

    def copy(self, client: Client, moved: Moved) -> None:
        """Copies the missing records. Raises `CloneError`, `ClientError` and `StorageError`.

        An earlier call or run may have found a gap and stopped before the end was moved. A partition that has records is therefore copied
        up to the source's current end, unless the end is fixed.
        """
        if self._is_continued and not self._has_fixed_end:
            self.end = max(self.end, self._offset(client, LATEST))
        self._is_continued = True
        while (before := self.position) < self.end:
            try:
                for fetched in client.read(self.partition, before, self.end, isolation="read_uncommitted", partition_max_bytes=FETCH_BYTES):
                    self._append(fetched)
                    moved(min(self.position, self.end) - before)
                    before = self.position
            except OffsetOutOfRangeError:
                self._restart(client)
            except RequestTimeoutError:
                if not self._has_nothing(client):
                    raise
                self.position = self.end
        self._fill()

    def cut_own(self, end: int) -> None:
        """Removes the batches that an earlier run has appended after the source's records. Raises `StorageError`."""
        self.log.truncate_to(end)
        self.position = self.log.log_end_offset

    # Following the source

    def take(self, fetched: Fetched, now_ms: int) -> None:
        """Appends the batches of an answer, up to the high watermark, and deletes records that the source has deleted. Raises `CloneError`
        and `StorageError`."""
        self.end = max(self.end, fetched.high_watermark)
        self._append(fetched)
        self._adopt_start(fetched.log_start_offset, now_ms)

    def find_start(self, client: Client, start: int, now_ms: int) -> None:
        """Deletes the records before `start`, which the source no longer has. Raises `CloneError` and `StorageError`."""
        if start > self.position:
            self._restart(client)
        else:
            self._adopt_start(start, now_ms)

    def check_end(self, end: int) -> None:
        """Raises `CloneError` if the source's log ends before the copy: it was truncated by an unclean election, or it belongs to another
        topic.
        """
        if end < self.position:
            raise self._cut_error()

    def _adopt_start(self, start: int, now_ms: int) -> None:
        if start > self.log.log_start_offset:
            self.log.advance_log_start(min(start, self.log.log_end_offset))
            for path in self.log.delete_expired(now_ms, self.log.log_end_offset):
                self._disk.remove(path)

    @property
    def offsets(self) -> LogOffsets:
        """The offsets for the checkpoint of a log that was flushed."""
        log = self.log
        return LogOffsets(self.topic_id, log.recovery_point, log.recovery_point, log.log_start_offset)

    def append_marker(self, marker: bytearray) -> None:
        """Appends an encoded transaction marker, whose offset has to be the log's end, and moves `end` after the marker."""
        self.log.append_as_follower(memoryview(marker))
        self.end = self.log.log_end_offset

    def _append(self, fetched: Fetched) -> None:
        data = memoryview(fetched.data)
        expected, size, next_offset = max(fetched.start, self.log.log_end_offset), 0, fetched.next_offset
        has_gap = False
        for position, header in iter_batches(data):
            has_gap = has_gap or header.base_offset > expected or header.record_count != header.last_offset_delta + 1
            if has_gap and not self._has_fixed_end:
                self.end = max(self.end, fetched.high_watermark)
            if header.base_offset >= self.end:
                next_offset = header.base_offset
                break
            expected, size = header.next_offset, position + header.size_bytes
        batches = data[:size] if self._change is None else self._change.apply(self.partition, data[:size])
        try:
            self.log.append_as_follower(batches)
        except ApiError as error:
            raise CloneError(f"{error.message}: this part of the source cannot be cloned") from None
        self.position = next_offset

    def _restart(self, client: Client) -> None:
        """Removes all records of the log and restarts it at the source's start, because the source has deleted the next records. Raises
        `CloneError` if the source's log was truncated instead.
        """
        start = self._offset(client, EARLIEST)
        if start <= self.position:
            raise self._cut_error()
        self.log.truncate_fully_and_start_at(start)
        self.position = start
        self.end = max(self.end, start)
        self.notes.append(f"{self.partition} begins at offset {start}: the source has deleted older records meanwhile")

    def _cut_error(self) -> CloneError:
        return CloneError(f"{self.partition} of the source ends before offset {self.position}, which was copied; remove the clone")

    def _has_nothing(self, client: Client) -> bool:
        """Whether the source has no batches between the position and the end, although its log reaches the end."""
        if self._offset(client, LATEST) < self.end:
            return False
        return not client.fetch({self.partition: self.position}, isolation="read_uncommitted", max_wait_ms=0)

    def _offset(self, client: Client, moment: int) -> int:
        return client.list_offsets({self.partition: moment}, isolation="read_uncommitted")[self.partition].offset

    def _fill(self) -> None:
        while (begin := self.log.log_end_offset) < self.end:
            delta = min(self.end - begin - 1, DELTA_MAX)
            epoch = max(self.log.epochs.latest, 0)
            header = BatchHeader(begin, 0, epoch, MAGIC, 0, 0, delta, -1, -1, -1, -1, -1, 0)
            self.log.append_as_follower(memoryview(rewrite_batch(header, [])))
