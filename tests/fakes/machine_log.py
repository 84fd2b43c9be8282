"""A partition in memory for tests of coordinators (log machines and their hosts, `ottla/machine`). Appends are kept one by one, so a test
can load them into a new machine. The high watermark advances immediately (`is_instant`) or when the test calls `commit`. `refuse_next`
makes the next append fail with a code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError, ErrorCode
from ottla.machine.contract import LogRecord, Machine, Transactional


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker that ends a client's transaction in the log."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Entry:
    offset: int
    what: LogRecord | Marker
    transactional: Transactional | None = None


class MemoryLog:
    """`machine.contract.MachineLog` over a list."""

    def __init__(self, *, is_instant: bool = True) -> None:
        self.entries: list[Entry] = []
        self.is_instant = is_instant
        self.end = 0
        self.high_watermark = 0
        self.refuse_next: ErrorCode | None = None
        self.batch_bytes_max = 1 << 40
        self.batches = 0
        self._waiting: dict[Callable[[], None], int] = {}

    def append_records(self, records: Sequence[LogRecord], transactional: Transactional | None, now_ms: int) -> int:
        if self.refuse_next is not None:
            code, self.refuse_next = self.refuse_next, None
            raise ApiError(code)
        assert records, "an empty batch"
        if sum(len(record.key) + len(record.value or b"") for record in records) > self.batch_bytes_max:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"more than {self.batch_bytes_max} bytes")
        self.batches += 1
        for record in records:
            # Keeps only the data that would be on disk, so that a machine cannot read attributes of its own record classes.
            self.entries.append(Entry(self.end, LogRecord(record.key, record.value), transactional))
            self.end += 1
        if self.is_instant:
            self.commit()
        return self.end

    def append_marker(self, producer_id: int, producer_epoch: int, is_commit: bool) -> int:
        """Appends a marker as the partition does, and returns its offset; the caller passes the marker on to the host."""
        self.entries.append(Entry(self.end, Marker(producer_id, producer_epoch, is_commit)))
        self.end += 1
        if self.is_instant:
            self.commit()
        return self.end - 1

    def committed_end(self) -> int:
        return self.high_watermark

    def call_when_committed(self, end: int, function: Callable[[], None]) -> None:
        self._waiting[function] = max(end, self._waiting.get(function, 0))

    def commit(self, end: int | None = None) -> None:
        """Moves the high watermark to `end`, or to the end of the log."""
        self.high_watermark = self.end if end is None else end
        for function in [function for function, waited in self._waiting.items() if waited <= self.high_watermark]:
            del self._waiting[function]
            function()

    def reader(self, piece_size: int = 3) -> MemoryReader:
        return MemoryReader(self, piece_size)

    def replay(self, machine: Machine) -> None:
        """Applies everything to another machine, as loading does."""
        MemoryPiece(self.entries, self.end).apply_to(machine)


class MemoryPiece:
    """`machine.host.LogPiece`."""

    def __init__(self, entries: Sequence[Entry], end: int) -> None:
        self.entries = entries
        self.end = end

    def apply_to(self, machine: Machine) -> None:
        for entry in self.entries:
            if isinstance(entry.what, Marker):
                machine.apply_marker(entry.offset, entry.what.producer_id, entry.what.producer_epoch, entry.what.is_commit)
            else:
                machine.apply(entry.offset, entry.what, entry.transactional)


class MemoryReader:
    """`machine.host.LogReader`."""

    def __init__(self, log: MemoryLog, piece_size: int) -> None:
        self._log = log
        self._piece_size = piece_size

    def read_piece(self, offset: int) -> MemoryPiece | None:
        entries = [entry for entry in self._log.entries if entry.offset >= offset][: self._piece_size]
        return MemoryPiece(entries, entries[-1].offset + 1) if entries else None
