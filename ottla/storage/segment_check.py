"""Checks the batches in a segment's file, piece by piece, and finds the ranges of damaged ones.

Every batch must be whole, have the right CRC, and begin after the end of the previous batch. Its leader epoch must be the log's epoch at
its offset, if both are known. The last batch must end where the next segment begins, unless the segment was compacted. (Gaps within a
segment are legal: the leader may have compacted its log before it sent it.) After damage the check continues at the next valid batch: the
batch after the bad one by its length field, or else a batch with an entry in the index. So a flipped bit in the records makes one batch
unreadable, and a damaged length field makes all batches before the next index entry unreadable.

It opens the file for each piece and shares nothing with the log, so it may run in a thread. Afterwards the caller must compare the segment
with the log again. `server/repair/segment_checks.py` decides when and how fast to check.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ottla.base.errors import DamagedLogError
from ottla.base.immutable import immutable
from ottla.base.ports import Disk, File
from ottla.base.types import NO_LEADER_EPOCH
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.index import OffsetIndex
from ottla.storage.scan import DamageError, scan_batches
from ottla.storage.time_index_check import TimeIndexCheck
from ottla.wire.batch_header import BATCH_OVERHEAD, HEADER, LOG_OVERHEAD, BatchHeader

RANGES_MAX = 1_000
"""Damaged ranges that are reported for one segment, at most. The last one then reaches to the end of the segment."""
_LOOK_BYTES = 1 << 14


@immutable(kw_only=True)
class DamagedRange:
    """Offsets [first_offset, end_offset) of the segment at `base_offset` cannot be read; in its file they are [position, end_position)."""

    base_offset: int
    first_offset: int
    end_offset: int
    position: int
    end_position: int
    reason: str


class SegmentCheck:
    """The check of the first `size` bytes of one segment. The next segment begins at `end_offset`. `may_end_early`: the segment was
    compacted.
    """

    def __init__(
        self, disk: Disk, stem: str, base_offset: int, end_offset: int, size: int, *,
        epochs: LeaderEpochs | None = None, times: TimeIndexCheck | None = None, may_end_early: bool,
    ) -> None:  # fmt: skip
        """`stem`: the path of the segment's files without their suffixes. `epochs`: a copy of the log's leader epochs, if they are
        known. `times`: gets all valid batches.
        """
        self.batches = 0
        self.bytes = 0
        self.damaged: list[DamagedRange] = []
        self.path = f"{stem}.log"
        self._disk = disk
        self._stem = stem
        self._base_offset = base_offset
        self._end_offset = end_offset
        self._size = size
        self._epochs = epochs or LeaderEpochs()
        self._times = times
        self._may_end_early = may_end_early
        self._position = 0
        self._next_offset = base_offset

    def run(self, bytes_max: int) -> bool:
        """Checks about `bytes_max` more bytes. Returns whether there are more to check. Raises `StorageError`."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            self._add(self._size, self._end_offset, f"{self.path} is missing")
            return False
        begin = self._position
        try:
            while self._position < self._size and self._position - begin < bytes_max:
                self._run(file, begin + bytes_max)
        finally:
            file.close()
        self.bytes += self._position - begin
        if self._position < self._size:
            return True
        if self._next_offset < self._end_offset and not self._may_end_early:
            reason = f"{self.path} ends at offset {self._next_offset}, and the next segment begins at {self._end_offset}"
            self._add(self._size, self._end_offset, reason)
        return False

    def _run(self, file: File, stop: int) -> None:
        """Checks up to `stop`, or to the end of the next damage."""
        try:
            found = scan_batches(
                file, self._position, self._size, next_offset=self._next_offset, offset_max=self._end_offset - 1, crc_from=0
            )
            for position, header, batch in found:
                self._check_epoch(position, header)
                if self._times is not None:
                    self._times.add(position, header, batch)
                self._position, self._next_offset = position + header.size_bytes, header.next_offset
                self.batches += 1
                if self._position >= stop:
                    return
        except DamageError as damage:
            self._position, self._next_offset = damage.position, damage.offset  # perhaps the position of the previous batch
            position, offset = self._resume(file, damage.position)
            self._add(position, offset, str(damage))

    def _check_epoch(self, position: int, header: BatchHeader) -> None:
        """Raises `DamageError` if the batch has another leader epoch than the log, because the CRC does not cover it."""
        known = self._epochs.epoch_at(header.base_offset)
        if NO_LEADER_EPOCH not in (known, header.partition_leader_epoch) and header.partition_leader_epoch != known:
            text = f"{self.path}: the batch at {position} is of leader epoch {header.partition_leader_epoch}, not of {known}"
            raise DamageError(text, self.path, position, self._next_offset)

    def _add(self, end_position: int, end_offset: int, reason: str) -> None:
        """Adds the range from the present offset to `end_offset`, at which the check continues."""
        if len(self.damaged) == RANGES_MAX - 1:
            end_position, end_offset = self._size, self._end_offset
        self.damaged.append(
            DamagedRange(
                base_offset=self._base_offset,
                first_offset=self._next_offset,
                end_offset=end_offset,
                position=self._position,
                end_position=end_position,
                reason=reason,
            )
        )
        self._position, self._next_offset = end_position, end_offset

    def _resume(self, file: File, damaged_at: int) -> tuple[int, int]:
        """Returns position and offset of the first valid batch after a bad one; the end of the segment if there is none."""
        for position in self._candidates(file, damaged_at):
            try:
                found = scan_batches(
                    file, position, self._size, next_offset=self._next_offset + 1, offset_max=self._end_offset - 1, crc_from=0,
                    first_bytes=_LOOK_BYTES,
                )  # fmt: skip
                return position, next(found)[1].base_offset
            except DamageError:
                continue
        return self._size, self._end_offset

    def _candidates(self, file: File, damaged_at: int) -> Iterator[int]:
        try:
            piece = file.pread(BATCH_OVERHEAD, damaged_at)
        except DamagedLogError:
            piece = b""
        if len(piece) == BATCH_OVERHEAD:
            following = damaged_at + LOG_OVERHEAD + max(BatchHeader._make(HEADER.unpack(piece)).batch_length, 0)
            if following < self._size:
                yield following
        index = OffsetIndex(f"{self._stem}.index")
        if not index.load(self._disk, self._size):
            yield from index.positions[bisect_right(index.positions, damaged_at) :]
