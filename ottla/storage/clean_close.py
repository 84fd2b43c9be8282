"""Closes logs cleanly: what is written, what must be synced, and what follows the sync.

Thousands of logs are closed in three steps, so that the syncs of many can run in threads meanwhile: `prepare` on the loop, the sync of the
files that it returned anywhere, `finish` on the loop. A log that has not changed since it was opened has nothing to sync. A new leader
epoch without a record is no change: opening a log drops such an epoch, and every start begins one in every log that this broker leads.
"""

from __future__ import annotations

from typing import Protocol

from ottla.storage import recovery_aids
from ottla.storage.durability import Durability
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.file_slice import Syncable


class OpenLog(recovery_aids.ServedLog, Protocol):
    """The parts of a log (`log.py`) that closing needs."""

    directory: str
    durability: Durability
    epochs: LeaderEpochs
    is_broken: bool

    def unflushed_files(self) -> list[Syncable]: ...

    def mark_flushed(self, offset: int) -> None: ...

    def release_files(self) -> None: ...


def prepare(log: OpenLog) -> list[Syncable]:
    """Writes the files of a clean close, and returns those that must be synced before `finish`."""
    if log.is_broken:
        return []
    log.epochs.truncate_end(log.log_end_offset)
    if log.durability.recovery_point < log.log_end_offset or log.active.shared is not None:
        log.active.add_final_time_entry()
        if recovery_aids.are_due(log, 0):
            recovery_aids.write(log, 0)
        else:
            log.active.write_indexes()
    return log.unflushed_files()


def finish(log: OpenLog, end_offset: int) -> None:
    """Closes all files. The log's end was `end_offset` at `prepare`, and the files that it returned have been synced."""
    if not log.is_broken:
        log.mark_flushed(end_offset)
        log.durability.end_bound(log.directory)
    log.release_files()
