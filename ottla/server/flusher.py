"""Group commit: one round of fsync serves every append that arrived while the last round ran.

With `ottla.flush.on.ack` a partition asks for a flush after each append and no reader sees the records before it is done. A round takes
the logs that asked, syncs their files in a thread, and then moves each partition's durable end on the loop, which releases the answers
that waited. While a round runs, new requests gather for the next one. A sync that fails takes the log directory offline and acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.base.errors import StorageError
from ottla.replication.partition import Partition
from ottla.server.monitoring.histogram import Histogram
from ottla.storage.file_slice import DirectorySync, Syncable

RunInThread = Callable[[Callable[[], StorageError | None], Callable[[StorageError | None], None]], None]
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
        """Calls `function` once all that was asked for is durable or has failed; at once if that is so already."""
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

    def _sync(
        self, work: Sequence[tuple[Partition, int, Sequence[Syncable]]], failures: dict[Partition, StorageError]
    ) -> StorageError | None:
        """Runs in a thread; only one round runs at a time, so no other code touches the histogram meanwhile."""
        started = self._now_ns()
        result = sync_all(work, failures)
        self.round_times.add(self._now_ns() - started)
        return result

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
    """The files of this log that must be synced. Finding them may write small ones; a failure is noted for the log, the others go on."""
    try:
        return partition.log.unflushed_files()
    except StorageError as error:
        failures[partition] = error
        return ()


def sync_all(
    work: Sequence[tuple[Partition, int, Sequence[Syncable]]], failures: dict[Partition, StorageError]
) -> StorageError | None:
    """Syncs every file of every log, in a thread. A failure is noted for its log and does not stop the others. Directories are synced last,
    a partition's before its parent, and each once, because the logs share their parent."""
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
    return None
