"""Closes all logs of a broker cleanly: writes their last files, syncs all logs that have changed, and then closes the files.

The work is spread over iterations of the event loop, because there may be thousands of logs and health probes must be answered. All files
are written before the first sync: a file system with a journal lets writes wait while it commits for a sync. A log that fails takes its
directory offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from ottla.base.broker_ports import Ports
from ottla.base.errors import StorageError
from ottla.base.loop.turns import Turns
from ottla.replication.partition import Partition
from ottla.server.flusher import sync_all
from ottla.storage import clean_close
from ottla.storage.file_slice import Syncable
from ottla.storage.small_files import directory_of

log = logging.getLogger("ottla")
T = TypeVar("T")

SYNCED_IN_TURN = 16
"""Number of changed logs that one thread syncs one after another."""
SYNCED_SINGLY_MAX = 256
"""With more changed logs in a log directory, one call syncs its whole file system. A new log has three files and a directory to sync, and
nearly each of these syncs waits for a commit of the file system's journal. With fewer logs, single syncs are faster: the file system may
hold unwritten files of other programs."""

Changed = tuple[Partition, int, Sequence[Syncable]]
"""A log to sync before it is closed: the partition, its log end offset, and its files in the order of their sync."""


class Directory(Protocol):
    """The part of a log directory that is used here."""

    is_online: bool

    def go_offline(self, reason: str) -> None: ...


class OpenPartitions(Protocol):
    """The part of `PartitionTable` that is used here."""

    def all(self) -> Iterable[Partition]: ...

    def directory_of(self, partition: Partition) -> Directory: ...


class LogClosing:
    """Closes all logs. Calls `done` with whether all of them were closed cleanly."""

    def __init__(self, ports: Ports, partitions: OpenPartitions, done: Callable[[bool], object]) -> None:
        self._disk, self._threads = ports.disk, ports.threads
        self._partitions = partitions
        self._done = done
        self._is_clean = True
        self._syncing = 0
        """Number of syncs that run in a thread or wait for one."""
        self._is_over = False
        self._turns = Turns(ports.clock, ports.timers)

    def begin(self) -> None:
        self._turns.begin()
        self._turns.add(self._close_each())
        self._turns.call_when_idle(self._end_when_synced)

    def _close_each(self) -> Iterator[None]:
        """Closes the logs that have not changed. Writes the files of the other logs, and then has them synced."""
        changed: dict[str, list[Changed]] = {}
        for partition in self._partitions.all():
            if not partition.is_online:
                continue
            end = partition.log.log_end_offset
            try:
                files = clean_close.prepare(partition.log)
            except StorageError as error:
                self._fail(partition, error)
                continue
            if files:
                changed.setdefault(directory_of(partition.log.directory), []).append((partition, end, files))
            else:
                self._finish(partition, end)
            yield
        for logs in changed.values():
            if len(logs) > SYNCED_SINGLY_MAX:
                self._sync_file_systems(logs)
            else:
                self._sync_singly(logs)

    def _sync_file_systems(self, changed: Sequence[Changed]) -> None:
        paths = [partition.log.directory for partition, _, _ in changed]

        def sync() -> bool | StorageError:
            try:
                return self._disk.sync_file_systems(paths)
            except StorageError as error:
                return error

        def synced(result: bool | StorageError) -> None:
            if isinstance(result, StorageError):
                self._turns.add(self._finish_each(changed, {partition: result for partition, _, _ in changed}))
            elif result:
                self._turns.add(self._finish_each(changed, {}))
            else:
                self._sync_singly(changed)

        self._run(sync, synced)

    def _sync_singly(self, changed: Sequence[Changed]) -> None:
        for at in range(0, len(changed), SYNCED_IN_TURN):
            self._sync_in_turn(changed[at : at + SYNCED_IN_TURN])

    def _sync_in_turn(self, changed: Sequence[Changed]) -> None:
        failures: dict[Partition, StorageError] = {}
        self._run(lambda: sync_all(changed, failures), lambda _: self._turns.add(self._finish_each(changed, failures)))

    def _run(self, work: Callable[[], T], done: Callable[[T], object]) -> None:
        """Runs `work` in a thread, then `done` on the loop. The closing is over when all such work is done."""
        self._syncing += 1

        def finish(result: T) -> None:
            done(result)
            self._syncing -= 1
            self._turns.call_when_idle(self._end_when_synced)

        self._threads.run(work, finish)

    def _finish_each(self, changed: Sequence[Changed], failures: Mapping[Partition, StorageError]) -> Iterator[None]:
        for partition, end, _ in changed:
            if partition in failures:
                self._fail(partition, failures[partition])
            else:
                self._finish(partition, end)
            yield

    def _finish(self, partition: Partition, end: int) -> None:
        try:
            clean_close.finish(partition.log, end)
        except StorageError as error:
            self._fail(partition, error)

    def _fail(self, partition: Partition, error: StorageError) -> None:
        """Takes the directory of a log offline, and logs the first failure in it."""
        directory = self._partitions.directory_of(partition)
        if directory.is_online:
            log.error("%s: %s", partition.topic_partition, error)
        directory.go_offline(str(error))
        self._is_clean = False

    def _end_when_synced(self) -> None:
        if not self._syncing and not self._is_over:
            self._is_over = True
            self._done(self._is_clean)
