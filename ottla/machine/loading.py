"""Restores the state machine of a coordinator (`contract.Machine`) from its partition's log: decodes the batches and applies their records
and markers.

`BatchReader` reads bytes from an offset on and decodes whole batches. Data batches become `apply` calls, control batches `apply_marker`
calls. A batch in a client's transaction is applied as transactional and takes effect at its marker.

Invariants: offsets only increase; a batch that compaction has emptied still advances the offset; a batch that cannot be decoded is skipped,
and so is a control batch of an unknown kind.

The caller provides a function that reads the bytes. The machine decodes the records, and skips records that it cannot decode.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import WireError
from ottla.machine.contract import LogRecord, Machine, Transactional
from ottla.wire.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    Buffer,
    iter_batches,
    read_control_record,
    read_records,
)

ReadBytes = Callable[[int], Buffer | None]
"""Returns the batches from the batch with this offset on; None at the end of the log. The first batch is whole. An incomplete last batch is
ignored."""


class BatchPiece:
    """The batches of one read, as a `host.LogPiece`."""

    __slots__ = ("_batches", "_start", "end")

    def __init__(self, start: int, batches: list[tuple[Buffer, BatchHeader]]) -> None:
        self._start = start
        self._batches = batches
        self.end = batches[-1][1].next_offset

    def apply_to(self, machine: Machine) -> None:
        for batch, header in self._batches:
            try:
                if header.is_control:
                    self._apply_marker(machine, batch, header)
                else:
                    self._apply_records(machine, batch, header)
            except WireError:
                # Only a client that writes into the internal topic can create such a batch. The coordinator must start nevertheless.
                continue

    def _apply_records(self, machine: Machine, batch: Buffer, header: BatchHeader) -> None:
        transactional = Transactional(header.producer_id, header.producer_epoch) if header.is_transactional else None
        for record in read_records(batch):
            # A record without a key was written into the internal topic by a client.
            if record.offset >= self._start and record.key is not None:
                machine.apply(record.offset, LogRecord(record.key, record.value), transactional)

    def _apply_marker(self, machine: Machine, batch: Buffer, header: BatchHeader) -> None:
        if header.base_offset < self._start:
            return
        control = read_control_record(batch)
        if control is not None and control.kind in (CONTROL_ABORT, CONTROL_COMMIT):
            machine.apply_marker(header.base_offset, header.producer_id, header.producer_epoch, control.kind == CONTROL_COMMIT)


class BatchReader:
    """A `host.LogReader` over a function that reads bytes."""

    __slots__ = ("_read",)

    def __init__(self, read: ReadBytes) -> None:
        self._read = read

    def read_piece(self, offset: int) -> BatchPiece | None:
        data = self._read(offset)
        if data is None:
            return None
        view = memoryview(data)
        batches: list[tuple[Buffer, BatchHeader]] = []
        for position, header in iter_batches(view):
            if header.next_offset > offset:
                batches.append((view[position : position + header.size_bytes], header))
        return BatchPiece(offset, batches) if batches else None
