"""Group commit: one round of fsync serves every append that arrived while the last round ran.

With `ottla.flush.on.ack` a partition requests a flush after each append, and readers see the records after the flush. A round syncs the
files of the requested logs in a thread. Then it advances each partition's durable end on the loop, which sends the waiting answers.
Requests during a round are part of the next one. A failed sync takes the log directory offline; the records that it should have synced are
not acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ottla.base.errors import StorageError
from ottla.replication.partition import Partition
from ottla.server.monitoring.histogram import Histogram
from ottla.storage.file_slice import DirectorySync, Syncable
from ottla.storage.small_files import directory_of, remove_boot

RunInThread = Callable[[Callable[[], None], Callable[[None], None]], None]
"""Runs the first function in a thread and calls the second with its result on the loop."""


class Flusher:
    """The group commit of one broker."""

    def __init__(
        self, run_in_thread: RunInThread, on_failure: Callable[[Partition, StorageError], None], nanoseconds: Callable[[], int]
    ) -> None:
        self._now_ns = nanoseconds
        self._run_in_thread = run_in_thread
        self._on_failure = on_failure
        self._asked: dict[Partition, None] = {}
        self._is_running = False
        self._on_idle: list[Callable[[], object]] = []
        self.rounds = 0
        self.round_times = Histogram()

    def request(self, partition: Partition) -> None:
        """Requests a sync of all that the partition has appended so far."""
        self._asked[partition] = None
        if not self._is_running:
            self._start()

    @property
    def is_idle(self) -> bool:
        return not self._is_running and not self._asked

    def call_when_idle(self, function: Callable[[], object]) -> None:
        """Calls `function` when all requested flushes are done or have failed; before returning if there is none."""
        if self.is_idle:
            function()
        else:
            self._on_idle.append(function)

    def _start(self) -> None:
        asked, self._asked = list(self._asked), {}
        self._is_running = True
        self.rounds += 1
        failures: dict[Partition, StorageError] = {}
        work = [(partition, partition.log.log_end_offset, files_of(partition, failures)) for partition in asked]
        self._run_in_thread(lambda: self._sync(work, failures), lambda _result: self._finish(work, failures))

    def _sync(self, work: Sequence[tuple[Partition, int, Sequence[Syncable]]], failures: dict[Partition, StorageError]) -> None:
        """Runs in a thread. Only one round runs at a time, so no other code changes the histogram."""
        started = self._now_ns()
        sync_all(work, failures)
        for partition in failures:
            disprove(partition)
        self.round_times.add(self._now_ns() - started)

    def _finish(
        self, work: Sequence[tuple[Partition, int, Sequence[Syncable]]], failures: dict[Partition, StorageError]
    ) -> None:
        for partition, end, _files in work:
            failure = failures.get(partition)
            if failure is not None:
                self._on_failure(partition, failure)
            else:
                partition.on_flushed(end)
        # Only now: a call above may append and request the next round, and two rounds must not run at once.
        self._is_running = False
        if self._asked:
            self._start()
        else:
            self._notify_idle()

    def _notify_idle(self) -> None:
        waiting, self._on_idle = self._on_idle, []
        for function in waiting:
            function()


def files_of(partition: Partition, failures: dict[Partition, StorageError]) -> Sequence[Syncable]:
    """Returns the files of this log to sync; small files may be written before. A failure is added to `failures`."""
    try:
        return partition.log.unflushed_files()
    except StorageError as error:
        failures[partition] = error
        return ()


def disprove(partition: Partition) -> None:
    """Removes the proof that the log's directory has lost nothing, in the thread with the failed sync: a process that is killed before the
    loop knows of the failure would leave the proof, and the next start would take the lost pages for synced ones (I44)."""
    with suppress(StorageError):
        remove_boot(partition.log.disk, directory_of(partition.log.directory))


def sync_all(work: Sequence[tuple[Partition, int, Sequence[Syncable]]], failures: dict[Partition, StorageError]) -> None:
    """Syncs every file of every log; runs in a thread. A failure is added to `failures` and does not stop the others. Directories are
    synced last: a partition's before its parent, and each one once."""
    directories: dict[str, tuple[DirectorySync, list[Partition]]] = {}
    for partition, _end, files in work:
        try:
            for file in files:
                if isinstance(file, DirectorySync):
                    directories.setdefault(file.path, (file, []))[1].append(partition)
                else:
                    file.sync()
        except StorageError as error:
            failures[partition] = error
    for path in sorted(directories, key=len, reverse=True):
        directory, partitions = directories[path]
        try:
            directory.sync()
        except StorageError as error:
            failures.update(dict.fromkeys(partitions, error))
