"""Closes logs cleanly: writes their last files, returns the files to sync, and closes them after the sync.

Thousands of logs are closed in three steps, so that the syncs of many can run in threads meanwhile: `prepare` on the loop, the sync of the
files that it returned anywhere, `finish` on the loop. A log that was closed cleanly before and has not changed since has nothing to sync.
"""

from __future__ import annotations

from typing import Protocol

from ottla.base.ports import Disk
from ottla.storage import recovery_aids
from ottla.storage.durability import Durability
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.file_slice import Syncable

UNAIDED_BYTES_MAX = 4096
"""A clean close writes a snapshot of the producers if more bytes of the log follow the newest snapshot. Otherwise the next start reads
these bytes again, as it reads the batches behind the last index entry."""


class OpenLog(recovery_aids.ServedLog, Protocol):
    """The parts of a log (`log.py`) that closing needs."""

    disk: Disk
    directory: str
    durability: Durability
    epochs: LeaderEpochs
    is_broken: bool

    def unflushed_files(self) -> list[Syncable]: ...

    def mark_flushed(self, offset: int) -> None: ...

    def release_files(self) -> None: ...


def prepare(log: OpenLog) -> list[Syncable]:
    """Writes the files of a clean close. Returns the files to sync before `finish`. Raises `StorageError`."""
    if log.is_broken:
        return []
    if log.durability.recovery_point < log.log_end_offset or log.active.shared is not None:
        log.active.add_final_time_entry()
        recovery_aids.write_new_entries(log.active)
        recovery_aids.write(log, UNAIDED_BYTES_MAX)
    epochs = log.epochs.append_to_file(log.disk, log.directory) if log.epochs.is_dirty else None
    return log.unflushed_files() + ([epochs] if epochs is not None else [])


def finish(log: OpenLog, end_offset: int) -> None:
    """Closes all files. `end_offset`: the log's end when `prepare` was called. The caller has synced the files that `prepare` returned."""
    if not log.is_broken:
        log.mark_flushed(end_offset)
        log.durability.end_cut(log.directory)
    log.release_files()
