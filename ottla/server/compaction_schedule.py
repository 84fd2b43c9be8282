"""Selects the log to compact next, gives the job to a worker process, and installs the result.

A round checks all compacted logs, one after another; `log.cleaner.backoff.ms` is the pause between rounds. The checks run on the loop in
time slices, because there may be tens of thousands of logs. A worker process rewrites a log that is due (`compaction_worker.py`, started
with the first job and ended after a while without work). Appends and reads continue meanwhile. The event loop waits for the disk only when
it installs the result, by renames and two syncs of the partition's directory. Then the first dirty offset of each log is written to
`cleaner-offset-checkpoint`.

A log that cannot be compacted (a damaged batch, a full disk, a killed worker) stays as it is: the broker logs one line and tries again
after a pause that doubles each time. If a log was deleted, truncated or taken offline meanwhile, the worker's files are removed, in this
run or at the next start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.loop.turns import Turns
from ottla.base.ports import Clock, Disk, Threads, TimerHandle, Timers, Worker, WorkerLost
from ottla.replication.partition import Partition
from ottla.server.partition_table import PartitionTable
from ottla.storage.file_slice import DirectorySync

if TYPE_CHECKING:
    from ottla.storage.segment_rewriter import Answer, CompactionJob, CompactionResult

log = logging.getLogger("ottla.compaction")

WORKER_MODULE = "ottla.server.compaction_worker"
BACKOFF_MS_MIN = 50
PIECE_MS = 5
PAUSE_MS_MAX = 600_000
"""Longest pause before another attempt to compact a log that could not be compacted, in milliseconds."""
BYTES_PER_KEY = 150
"""Memory of the worker for one key, in bytes. A job has at most `log.cleaner.dedupe.buffer.size` divided by this many keys."""
IDLE_ROUNDS_MAX = 4
"""Consecutive rounds without work after which the worker process ends. Starting another takes 0.1 s of CPU."""


class Refusal(NamedTuple):
    """A log that could not be compacted."""

    failures: int
    not_before_ms: int


class CompactionSchedule:
    """Schedules the compaction of one broker: at most one job at a time."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        disk: Disk,
        threads: Threads,
        partitions: PartitionTable,
        remove_later: Callable[[list[str], int], None],
        checkpoints_due: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._disk = disk
        self._threads = threads
        self._partitions = partitions
        self._remove_later = remove_later
        self._checkpoints_due = checkpoints_due
        self._turns = Turns(clock, timers, PIECE_MS)
        self._turns.begin()
        self._handle: TimerHandle | None = None
        self._worker: Worker | None = None
        self._waiting: deque[Partition] = deque()
        self._refusals: dict[Partition, Refusal] = {}
        self._is_stopped = False
        self._has_worked = False
        self._idle_rounds = 0
        self.is_under_way = False
        self.worked_on: Partition | None = None
        """The log whose files the worker process may be writing."""

    def start(self) -> None:
        if self._config.log_cleaner_enable:
            self._wait()

    def stop(self) -> None:
        """Drops the job in progress, which has not changed the log yet."""
        self._is_stopped = True
        self._turns.drop()
        if self._handle is not None:
            self._handle.cancel()
        if self._worker is not None:
            self._worker.close()

    def look(self) -> None:
        """Begins a round over all compacted logs."""
        self.is_under_way = True
        self._has_worked = False
        self._turns.add(self._round())

    def first_dirty_offset(self, partition: Partition) -> int:
        return self._partitions.directory_of(partition).clean_offsets.get(partition.topic_partition, 0)

    # A round

    def _wait(self) -> None:
        if not self._is_stopped:
            self._handle = self._timers.call_later(max(self._config.log_cleaner_backoff_ms, BACKOFF_MS_MIN), self.look)

    def _round(self) -> Iterator[None]:
        """Finds the compacted logs, and checks them up to the first that is due."""
        is_on = self._config.log_cleaner_threads > 0
        for piece in self._partitions.in_pieces():
            self._waiting.extend(found for found in piece if is_on and found.is_online and found.log.config.is_compacted)
            yield
        self._forget_lost()
        yield from self._up_to_the_next()

    def _next(self) -> None:
        """Continues the round after a job."""
        if not self._is_stopped:
            self._turns.add(self._up_to_the_next())

    def _up_to_the_next(self) -> Iterator[None]:
        while self._waiting:
            partition = self._waiting.popleft()
            job = (yield from self._plan(partition)) if self._is_here(partition) else None
            if job is not None and self._is_here(partition):
                self._has_worked = True
                self._hand_over(partition, job)
                return
            yield
        self._end_round()

    def _end_round(self) -> None:
        self.is_under_way = False
        self._idle_rounds = 0 if self._has_worked else self._idle_rounds + 1
        if self._idle_rounds == IDLE_ROUNDS_MAX and self._worker is not None:
            self._threads.run(self._worker.rest, lambda _: None)
        self._wait()

    def _plan(self, partition: Partition) -> Generator[None, None, CompactionJob | None]:
        from ottla.storage.compaction_plan import plan_in_steps

        refusal = self._refusals.get(partition)
        if refusal is not None and self._clock.monotonic_ms() < refusal.not_before_ms:
            return None
        now_ms = self._clock.wall_ms()
        try:
            self._roll_overdue(partition, now_ms)
            return (
                yield from plan_in_steps(
                    partition.log,
                    first_dirty_offset=self.first_dirty_offset(partition),
                    last_stable_offset=partition.last_stable_offset,
                    now_ms=now_ms,
                    keys_max=max(1, self._config.log_cleaner_dedupe_buffer_size // BYTES_PER_KEY),
                )
            )
        except StorageError as error:
            partition.fail(error)
            return None

    def _roll_overdue(self, partition: Partition, now_ms: int) -> None:
        """Rolls an active segment with records older than `max.compaction.lag.ms`, so that they are compacted although nothing is appended
        (KIP-354)."""
        active = partition.log.active
        if active.size and 0 <= active.first_batch_timestamp() < now_ms - partition.log.config.max_compaction_lag_ms:
            partition.log.roll()

    def _hand_over(self, partition: Partition, job: CompactionJob) -> None:
        from ottla.storage.segment_rewriter import Failed, Order

        self.worked_on = partition
        worker = self._worker = self._worker or self._threads.worker(WORKER_MODULE)
        order = Order(job=job, bytes_per_second=self._config.log_cleaner_io_max_bytes_per_second)

        def work() -> Answer:
            try:
                answer: Answer = worker.ask(order)
                return answer
            except WorkerLost as lost:
                return Failed(reason=str(lost))

        self._threads.run(work, lambda answer: self._take(partition, job, answer))

    def _take(self, partition: Partition, job: CompactionJob, answer: Answer) -> None:
        self.worked_on = None
        if self._is_stopped:
            return
        from ottla.storage.segment_rewriter import Failed

        if isinstance(answer, Failed):
            self._refuse(partition, answer.reason)
        elif answer is not None and self._is_here(partition) and self._install(partition, job, answer):
            self._sync_names(partition)
            return
        self._next()

    def _install(self, partition: Partition, job: CompactionJob, result: CompactionResult) -> bool:
        from ottla.storage.compaction_plan import install

        try:
            retired = install(partition.log, job, result)
        except StorageError as error:
            partition.fail(error)
            return False
        if retired is None:
            return False
        self._remove_later(retired, partition.log.config.file_delete_delay_ms)
        self._partitions.directory_of(partition).clean_offsets[partition.topic_partition] = result.end_offset
        self._refusals.pop(partition, None)
        before, after = result.bytes_before, result.bytes_after
        log.info("%s: compacted up to offset %d, %d bytes became %d", partition.topic_partition, result.end_offset, before, after)
        if result.unread_batches:
            text = "%s: %d batches stay as they are, because their records cannot be read; the first at %s"
            log.warning(text, partition.topic_partition, result.unread_batches, result.unread_reason)
        return True

    def _refuse(self, partition: Partition, reason: str) -> None:
        failures = self._refusals[partition].failures + 1 if partition in self._refusals else 1
        pause_ms = min(max(self._config.log_cleaner_backoff_ms, BACKOFF_MS_MIN) << min(failures, 16), PAUSE_MS_MAX)
        self._refusals[partition] = Refusal(failures, self._clock.monotonic_ms() + pause_ms)
        log.warning("%s was not compacted: %s; next try in %d s", partition.topic_partition, reason, pause_ms // 1000)

    # After a job

    def _sync_names(self, partition: Partition) -> None:
        """Syncs the file names of an installed result in a thread. The next job begins afterwards."""
        compacted = partition.log.directory

        def sync() -> StorageError | None:
            try:
                DirectorySync(self._disk, compacted).sync()
            except StorageError as error:
                return error
            return None

        self._threads.run(sync, self._names_synced)
        self._checkpoints_due()  # A lost checkpoint only makes the next round larger.

    def _names_synced(self, error: StorageError | None) -> None:
        if error is not None:
            log.warning("cannot sync the names of compacted segments: %s", error)
        self._next()

    def _is_here(self, partition: Partition) -> bool:
        is_whole = partition.is_online and partition.state.damage is None
        return is_whole and self._is_known(partition) and not self._partitions.is_moving(partition)

    def _is_known(self, partition: Partition) -> bool:
        return self._partitions.get(*partition.topic_partition) is partition

    def _forget_lost(self) -> None:
        """Forgets partitions that were deleted or opened again."""
        for partition in [found for found in self._refusals if not self._is_known(found)]:
            del self._refusals[partition]
