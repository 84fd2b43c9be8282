"""The ledger of a log directory. It has a row for each log, with the log's end, the end of its synced part and its high watermark, up to
date with the last append.

A start after a crash compares each log with its row. A crash tears only the bytes above the noted end, because the end is noted after the
write. A log that ends below the noted end, or has a bad batch below it, was therefore damaged. A row without a log shows that a log is
missing. A replica that lost records is therefore never taken for a complete one.

The rows are in memory-mapped files, so noting an offset needs no system call. Written values survive the end of the process. If the disk
has no space for a page when a value is written to it, the operating system ends the process (SIGBUS). The append was not answered yet, so
no acknowledged record is lost. After a power failure each value may be an older one: then only `synced`, which was true when it was
written, still proves something (`settle`). A truncation clears a row before it touches the log. A ledger is a few files, each four times as
large as the one before. A row has a checksum over its topic id and partition, not over its offsets. Checksum and newest leader epoch share
one cell. A row that names no log is free. A ledger that is missing or damaged proves nothing (`is_known`). `recovery.py` uses the proofs.
`server/directories/log_directories.py` detects a restart of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from struct import Struct
from typing import NamedTuple, Protocol
from zlib import crc32

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.file_slice import PathSync
from ottla.storage.small_files import write_atomically

LEDGER_FILE = "ottla-ledger"
ROW_CELLS = 8
FIRST_ROWS = 64
GROWTH = 4
CELL_BYTES = 8
UNKNOWN = -1
"""Value of an offset or epoch that is not known. The end and the start of a log have it while the log is being cut, because a crash may
leave either state.
"""
_HEADER = Struct("=8q")
_MAGIC, _VERSION = 0x4F74746C614C6467, 1
_COMPLETE_CELL = 2
_KEY = Struct("=16sq")
_ROW = Struct("=16sq4qq")

Key = tuple[bytes, int]
"""Topic id and partition."""


class Proof(NamedTuple):
    """The offsets that the last run of the broker noted for a log. If the log was being cut, `end` and `start` are `UNKNOWN`. After a
    restart of the machine `start` is `UNKNOWN`, and the proof is not exact.
    """

    end: int = UNKNOWN
    synced: int = 0
    high_watermark: int = UNKNOWN
    start: int = UNKNOWN
    epoch: int = UNKNOWN
    """The newest leader epoch below `end`, or a later one; `UNKNOWN` if it was not noted."""

    @property
    def is_exact(self) -> bool:
        return self.start != UNKNOWN


NO_PROOF = Proof()


class LedgerRow:
    """The row of one log. `cells[at]` is its end; the next cells are `SYNCED`, `WATERMARK`, `START` and `CHECK`."""

    __slots__ = ("at", "cells")

    def __init__(self, cells: memoryview, at: int) -> None:
        self.cells = cells
        self.at = at

    def enter(self, end: int, synced_max: int, start: int, epoch: int) -> None:
        """Notes a log that was opened, or whose end has been cut. The synced end only becomes lower."""
        self.note_epoch(epoch)
        cells, at = self.cells, self.at
        cells[at + SYNCED] = min(cells[at + SYNCED], synced_max)
        cells[at + START] = start
        cells[at] = end

    def note_epoch(self, epoch: int) -> None:
        """Notes the newest leader epoch. Called before the end of its first batch is noted."""
        cells, at = self.cells, self.at + CHECK
        cells[at] = cells[at] & CHECK_MASK | epoch + 1 << CHECK_BITS

    def clear(self) -> None:
        """Removes end and start from the row until `enter`, because the log is about to be cut."""
        self.cells[self.at] = self.cells[self.at + START] = UNKNOWN


SYNCED, WATERMARK, START, CHECK = 1, 2, 3, 4
CHECK_BITS = 32
CHECK_MASK = (1 << CHECK_BITS) - 1
"""The checksum is the lower half of its cell. The upper half is one more than the newest leader epoch, 0 if that is not known."""
END_CELL = 3
"""Position of the log's end in a row. The cells before it name the log."""


class LedgerLog(Protocol):
    """The part of `log.Log` that a row notes."""

    row: LedgerRow
    epochs: LeaderEpochs
    log_end_offset: int
    log_start_offset: int

    @property
    def recovery_point(self) -> int: ...


def enter(log: LedgerLog, row: LedgerRow) -> None:
    """Notes the log in this row, from now on."""
    row.enter(log.log_end_offset, log.recovery_point, log.log_start_offset, log.epochs.latest)
    log.row = row


DETACHED = LedgerRow(memoryview(bytearray(5 * CELL_BYTES)).cast("q"), 0)
"""A row outside of any ledger, for logs that need no proof."""


class Ledger:
    """See the module. `report` gets a line for each problem."""

    def __init__(self, disk: Disk, directory: str, report: Callable[[str], object], *, is_new: bool = False) -> None:
        """`is_new`: the directory has never held a log, so an empty ledger is complete."""
        self._disk = disk
        self._directory = directory
        self._report = report
        self._files: list[memoryview] = []
        self._rows: dict[Key, LedgerRow] = {}
        self._free: list[LedgerRow] = []
        self.is_known = False
        """Whether the ledger is as old as the directory, so that a log without a row was never in the directory."""
        self.is_lost = False
        """Whether the ledger's files were missing or damaged, in a directory that is not new."""
        self._read(is_new=is_new)

    def _path(self, number: int) -> str:
        return f"{self._directory}/{LEDGER_FILE}" + (f".{number}" if number else "")

    def _read(self, *, is_new: bool) -> None:
        number = 0
        try:
            while self._disk.exists(self._path(number)):
                cells = self._disk.map_cells(self._path(number))
                if not is_sound(cells, number):
                    raise StorageError(f"{self._path(number)} is damaged", self._path(number))
                self._take(cells)
                number += 1
            self.is_known = bool(self._files[0][_COMPLETE_CELL]) if number else is_new
            self.is_lost = not number and not is_new
        except StorageError as error:
            self._report(f"{error}; the ledger begins again, and proves nothing of the logs in {self._directory}")
            self._files, self._free, self._rows = [], [], {}
            self.is_known, self.is_lost, number = False, True, 0
            while self._disk.exists(self._path(number)):
                self._disk.remove(self._path(number))
                number += 1
        if not self._files:
            self._grow()

    def _take(self, cells: memoryview) -> None:
        self._files.append(cells)
        rows = cells.cast("B")
        for number in range(1, len(cells) // ROW_CELLS):
            at = number * ROW_CELLS
            row = LedgerRow(cells, at + END_CELL)
            if not cells[at + 2]:
                self._free.append(row)
                continue
            topic_id, stored, _, _, _, _, check = _ROW.unpack_from(rows, at * CELL_BYTES)
            if check & CHECK_MASK == crc32(_KEY.pack(topic_id, stored)):
                self._rows[topic_id, stored - 1] = row
            else:  # damaged, or begun just before a power failure
                cells[at + 2] = 0
                self._free.append(row)

    # Proofs

    def proof(self, topic_id: bytes, partition: int) -> Proof:
        row = self._rows.get((topic_id, partition))
        if row is None:
            return NO_PROOF
        end, synced, high_watermark, start, check = row.cells[row.at : row.at + CHECK + 1]
        return Proof(end, synced, high_watermark, start, (check >> CHECK_BITS) - 1)

    def has(self, topic_id: bytes, partition: int) -> bool:
        return (topic_id, partition) in self._rows

    def settle(self) -> None:
        """Lowers each proof to the synced end, after a restart of the machine. Frees the rows of logs without synced records, which may be
        lost.
        """
        for key, row in list(self._rows.items()):
            cells, at = row.cells, row.at
            if cells[at + SYNCED] <= 0:
                self.free(*key)
            else:
                cells[at] = min(cells[at], cells[at + SYNCED])
                cells[at + START] = UNKNOWN

    # Rows

    def row(self, topic_id: bytes, partition: int) -> LedgerRow:
        """Returns the row of a log in the directory. Creates one if the log has none."""
        row = self._rows.get((topic_id, partition))
        if row is None:
            if not self._free:
                self._grow()
            row = self._rows[topic_id, partition] = self._free.pop()
            at = (row.at - END_CELL) * CELL_BYTES
            check = crc32(_KEY.pack(topic_id, partition + 1))
            # The number of the partition is stored last: a row without it is free.
            _ROW.pack_into(row.cells.cast("B"), at, topic_id, 0, UNKNOWN, 0, 0, UNKNOWN, check)
            row.cells[row.at - 1] = partition + 1
        return row

    def free(self, topic_id: bytes, partition: int) -> None:
        """Frees the row of a log that was removed from the directory."""
        row = self._rows.pop((topic_id, partition), None)
        if row is not None:
            row.cells[row.at - 1] = 0
            # The log that had the row may still be open for a moment.
            self._free.append(LedgerRow(row.cells, row.at))
            row.cells, row.at = DETACHED.cells, 0

    def _grow(self) -> None:
        """Adds a file of rows. If the disk fails, the rows are only in memory, and their logs have no proof at the next start."""
        number = len(self._files)
        size = FIRST_ROWS * GROWTH**number * ROW_CELLS * CELL_BYTES
        try:
            header = _HEADER.pack(_MAGIC, _VERSION, self.is_known, 0, 0, 0, 0, 0)
            write_atomically(self._disk, self._path(number), header.ljust(size, b"\0"))
            cells = self._disk.map_cells(self._path(number))
        except StorageError as error:
            self._report(f"{error}; some logs in {self._directory} will have no proof at the next start")
            self.is_known = False
            cells = memoryview(bytearray(size)).cast("q")
        self._take(cells)

    def keep(self, assigned: Collection[Key]) -> None:
        """Frees the rows of all logs except `assigned`."""
        for key in [key for key in self._rows if key not in assigned]:
            self.free(*key)

    def sync(self) -> None:
        """Makes all values durable; may be called from a thread."""
        for number in range(len(self._files)):
            PathSync(self._disk, self._path(number)).sync()


def is_sound(cells: memoryview, number: int) -> bool:
    size = FIRST_ROWS * GROWTH**number * ROW_CELLS
    return len(cells) == size and tuple(cells[:_COMPLETE_CELL]) == (_MAGIC, _VERSION)
