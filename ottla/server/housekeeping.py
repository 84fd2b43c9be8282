"""Periodic work: retention, compaction, scrub, checkpoints, flushes by age, expiry of producer ids, in-sync sets, connections, failed
directories.

Each task has an interval and runs on the loop. Tasks that look at all partitions run in time slices, because there may be tens of
thousands. Slow disk operations run in a thread: checkpoints with fsync, removal of files, tests of a failed directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.loop.turns import Turns
from ottla.base.ports import Peers, TimerHandle, Timers
from ottla.cluster.metadata_cache import MetadataCache
from ottla.machine.host import SlewedClock
from ottla.replication.partition import Partition
from ottla.server.compaction_schedule import CompactionSchedule
from ottla.server.directories.generation_renewals import GenerationRenewals
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.flusher import Flusher
from ottla.server.listener import Listeners
from ottla.server.partition_table import PartitionTable
from ottla.server.repair.repairs import Repairs
from ottla.server.repair.scrub_schedule import ScrubSchedule
from ottla.server.repair.segment_checks import SegmentChecks
from ottla.server.replica_changes import ReplicaChanges
from ottla.storage import recovery_aids
from ottla.storage.retention import kept_by_the_future

log = logging.getLogger("ottla.housekeeping")

SWEEPS_PER_IDLE_TIME = 10
"""Sweeps of idle connections in `connections.max.idle.ms`. A connection is closed after up to a tenth more than this time, but not before a
second has passed."""
SWEEP_MS_MIN = 100
RECHECK_MS = 5_000
"""Interval of tests of failed log directories, in milliseconds."""
PIECE_MS = 5
CHECKPOINTS_DUE_MS = 200
"""Delay of checkpoints after a deletion or compaction, in milliseconds, so that several share one round."""
NOT_WRITTEN = StorageError("no checkpoints were written")


def always(_partition: Partition) -> bool:
    return True


def is_unflushed(partition: Partition) -> bool:
    return partition.log.log_end_offset > partition.log.recovery_point


def has_new_start(partition: Partition) -> bool:
    """Whether the log start offset is above the last checkpoint's."""
    return partition.log.log_start_offset > partition.state.noted_log_start


class Housekeeping:
    """All periodic work of one broker."""

    def __init__(
        self,
        *,
        ports: Ports,
        config: BrokerConfig,
        partitions: PartitionTable,
        replicas: ReplicaChanges,
        listeners: Listeners,
        flusher: Flusher,
        peers: Peers,
        metadata: MetadataCache,
    ) -> None:
        clock, timers, disk, threads = ports.clock, ports.timers, ports.disk, ports.threads
        self._ages = ports.ages
        self._config = config
        self._clock = ports.ages.clock
        self._time = SlewedClock(ports.ages.clock)
        self._timers = timers
        self._disk = disk
        self._threads = threads
        self._partitions = partitions
        self._replicas = replicas
        self._listeners = listeners
        self._flusher = flusher
        self._handles: dict[str, TimerHandle] = {}
        self.turns = Turns(clock, timers, PIECE_MS)
        self._flushed_at_ms: dict[Partition, int] = {}
        self._under_way: dict[str, None] = {}
        self._is_writing_checkpoints = False
        self._are_checkpoints_due = False
        self._are_starts_due = False
        is_alone = config.is_single_broker
        self._renewals = None if is_alone else GenerationRenewals(ports.store, threads, config.this_broker_id, partitions.log_directories)
        self.compaction = CompactionSchedule(
            config=config, clock=ports.ages.clock, timers=ports.ages.timers, disk=disk, threads=threads, partitions=partitions,
            remove_later=self.remove_later, checkpoints_due=self._checkpoints_due,
        )  # fmt: skip
        self.checks = SegmentChecks(disk, timers, threads)
        self.repairs = Repairs(
            broker_id=config.this_broker_id, clock=clock, timers=timers, disk=disk, threads=threads, peers=peers, metadata=metadata,
            partitions=partitions, replicas=replicas, checks=self.checks, remove_later=self.remove_later,
            is_compacting=lambda partition: self.compaction.worked_on is partition,
        )  # fmt: skip
        partitions.on_doubt = self.repairs.doubt
        self.scrub = ScrubSchedule(
            config=config, clock=clock, timers=timers, random=ports.random, partitions=partitions, checks=self.checks,
            take=self.repairs.take,
        )  # fmt: skip

    def start(self) -> None:
        config = self._config
        self._every("retention", lambda: config.log_retention_check_interval_ms, self.apply_retention, self._ages.timers)
        self._every("checkpoints", lambda: config.log_flush_offset_checkpoint_interval_ms, self.write_checkpoints)
        if self._renewals is not None:
            self._every("generations", lambda: config.log_flush_offset_checkpoint_interval_ms, self._renewals.renew)
        self._every("watermarks", lambda: config.replica_high_watermark_checkpoint_interval_ms, self.write_watermarks)
        self._every("tick", lambda: config.ottla_tick_interval_ms, self.flush_due)
        self._every("producers", lambda: config.producer_id_expiration_check_interval_ms, self.expire_producers, self._ages.timers)
        self._every("isr", lambda: config.replica_lag_time_max_ms // 2, self.shrink_isrs)
        self._every("idle", lambda: max(config.connections_max_idle_ms // SWEEPS_PER_IDLE_TIME, SWEEP_MS_MIN), self.sweep_connections)
        self._every("memory", lambda: config.ottla_tick_interval_ms, self._listeners.relieve)
        self._every("offline", lambda: RECHECK_MS, self.recheck_offline)
        self.compaction.start()
        self.scrub.start()

    def stop(self) -> None:
        self.compaction.stop()
        self.scrub.stop()
        self.repairs.stop()
        self.checks.stop()
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self.turns.drop()

    # Tasks

    def apply_retention(self) -> None:
        """Removes segments by `retention.ms`, `retention.bytes` and the log start offset."""
        now_ms = self._clock.wall_ms()
        self._with_each("retention", lambda partition: self._remove_expired(partition, now_ms))

    def _remove_expired(self, partition: Partition, now_ms: int) -> None:
        try:
            paths = partition.log.delete_expired(now_ms, partition.high_watermark)
        except StorageError as error:
            partition.fail(error)
            return
        self._name_future(partition, now_ms)
        if paths:
            log.info("%s: %d files of expired segments are removed", partition.topic_partition, len(paths))
            self.remove_later(paths, partition.log.config.file_delete_delay_ms)

    def _name_future(self, partition: Partition, now_ms: int) -> None:
        """Logs a segment that is kept because of a timestamp in the future, unless the last round has found the same segment."""
        found = partition.log
        kept = kept_by_the_future(found.segments, found.config, now_ms)
        if kept is not None and kept != found.named_future:
            log.warning(
                "%s: the segment at offset %d has a record with timestamp %d, %d minutes in the future: retention.ms deletes nothing from"
                " there on before that time. message.timestamp.after.max.ms refuses such records",
                partition.topic_partition, kept.base_offset, kept.timestamp_ms, (kept.timestamp_ms - now_ms) // 60_000,
            )  # fmt: skip
        found.named_future = kept

    def remove_later(self, paths: list[str], delay_ms: int) -> None:
        """Removes files after a delay, because readers may still use their slices."""
        self._ages.timers.call_later(delay_ms, lambda: self._threads.run(lambda: self._remove(paths, self._disk.remove), ignore))

    def remove_tree_later(self, path: str, delay_ms: int) -> None:
        """Removes the directory of a deleted partition after the delay. Schedules a round of checkpoints, which removes the partition's
        entries."""
        self._checkpoints_due()
        self._ages.timers.call_later(delay_ms, lambda: self._threads.run(lambda: self._remove([path], self._disk.remove_tree), ignore))

    def write_checkpoints(self) -> None:
        """Writes recovery aids on the loop, and then the checkpoints in a thread. Does nothing while another round runs."""
        if not self._is_writing_checkpoints:
            self._with_each("recovery aids", self._write_recovery_aids)
            self._write_checkpoints()

    def write_watermarks(self) -> None:
        """Writes only the high watermarks, more often. Does nothing while another round runs."""
        if not self._is_writing_checkpoints:
            self._is_writing_checkpoints = True
            self.turns.add(self._plan_watermarks())

    def _plan_watermarks(self) -> Iterator[None]:
        work = []
        try:
            for directory in self._partitions.log_directories():
                if directory.is_online:
                    work.append((directory.path, (yield from directory.plan_watermarks(self._partitions.in_pieces()))))
        except BaseException:
            self._is_writing_checkpoints = False
            raise
        self._threads.run(lambda: {path: plan() for path, plan in work}, lambda errors: self._checkpoints_written(errors, []))

    def _checkpoints_due(self) -> None:
        """Schedules a round of checkpoints after a deletion or a compaction (`CHECKPOINTS_DUE_MS`)."""
        if not self._are_checkpoints_due:
            self._are_checkpoints_due = True
            self._timers.call_later(CHECKPOINTS_DUE_MS, self._write_due_checkpoints)

    def note_log_starts(self) -> None:
        """Schedules a round of checkpoints immediately, because the answer to DeleteRecords waits for it."""
        if not self._are_starts_due:
            self._are_starts_due = self._are_checkpoints_due = True
            self._timers.call_soon(self._write_due_checkpoints)

    def _write_due_checkpoints(self) -> None:
        if self._are_checkpoints_due and not self._is_writing_checkpoints:  # Otherwise the end of the running round calls this again.
            self._are_checkpoints_due = self._are_starts_due = False
            self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        self._is_writing_checkpoints = True
        self.turns.add(self._plan_checkpoints())

    def _plan_checkpoints(self) -> Iterator[None]:
        work, starts = [], list[tuple[Partition, str, int]]()
        try:
            for piece in self._partitions.in_pieces():
                raised = filter(has_new_start, piece)
                starts += [(partition, partition.log.directory, partition.log.log_start_offset) for partition in raised]
                yield
            for directory in self._partitions.log_directories():
                if directory.is_online:
                    work.append((directory.path, (yield from directory.plan_in_steps(self._partitions.in_pieces()))))
        except BaseException:
            self._is_writing_checkpoints = False  # Otherwise no further round would begin.
            raise
        self._threads.run(lambda: {path: plan() for path, plan in work}, lambda errors: self._checkpoints_written(errors, starts))

    def _write_recovery_aids(self, partition: Partition) -> Iterator[None]:
        """Writes recovery aids: with them, a start after a kill reads only the part of a log above its recovery point."""
        written, directory = partition.log, partition.log.directory
        try:
            for _ in recovery_aids.in_steps(written):
                yield
                if not self._is_here(partition) or written.directory != directory:
                    return
        except StorageError as error:
            partition.fail(error)

    def flush_due(self) -> None:
        """Flushes logs by `flush.ms` and `flush.messages`, and all sealed segments."""
        if "flushes" not in self._under_way:
            before, self._flushed_at_ms = self._flushed_at_ms, {}
            now_ms = self._clock.monotonic_ms()
            self._with_each("flushes", lambda partition: self._flush_if_due(partition, before.get(partition, now_ms), now_ms), is_unflushed)

    def _flush_if_due(self, partition: Partition, flushed_at_ms: int, now_ms: int) -> None:
        log_ = partition.log
        is_sealed_unflushed = log_.recovery_point < log_.active.base_offset  # after a roll
        if log_.log_end_offset >= log_.flush_offset or now_ms - flushed_at_ms >= log_.config.flush_ms or is_sealed_unflushed:
            self._flusher.request(partition)
        else:
            self._flushed_at_ms[partition] = flushed_at_ms

    def expire_producers(self) -> None:
        now_ms = self._time.now_ms()
        self._with_each("producers", lambda partition: partition.log.producers.expire(now_ms, self._config.producer_id_expiration_ms))

    def shrink_isrs(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._with_each("isr", lambda partition: self._shrink_isr(partition, now_ms))

    def _shrink_isr(self, partition: Partition, now_ms: int) -> None:
        if partition.leader is not None:
            partition.leader.maybe_shrink_isr(now_ms, self._config.replica_lag_time_max_ms)

    def sweep_connections(self) -> None:
        if self._config.connections_max_idle_ms >= 0:  # a negative time disables it
            self._listeners.sweep(SWEEPS_PER_IDLE_TIME)

    def recheck_offline(self) -> None:
        """Tries failed directories, and directories with a log that could not be opened. Serves the writable ones again."""
        for directory in self._partitions.log_directories():
            if not directory.is_online or self._partitions.unopened_in(directory):
                self._threads.run(directory.can_be_written, lambda is_well, d=directory: self._checked(d, is_well))  # type: ignore[misc]

    # Inside

    def _with_each(self, task: str, do: Callable[[Partition], object], may_need: Callable[[Partition], bool] = always) -> None:
        """Calls `do` for every online partition that may need it, in time slices. Partitions that are deleted meanwhile are skipped. If the
        last round of the task is unfinished, this round is skipped."""
        if task not in self._under_way:
            self._under_way[task] = None
            self.turns.add(self._steps_with_each(task, do, may_need))

    def _steps_with_each(self, task: str, do: Callable[[Partition], object], may_need: Callable[[Partition], bool]) -> Iterator[None]:
        try:
            for piece in self._partitions.in_pieces():
                for partition in piece:
                    if may_need(partition) and self._is_here(partition):
                        steps = do(partition)
                        if isinstance(steps, Iterator):
                            yield from steps
                yield
        finally:
            del self._under_way[task]

    def _is_here(self, partition: Partition) -> bool:
        return partition.is_online and self._partitions.get(*partition.topic_partition) is partition

    def _every(self, name: str, interval_ms: Callable[[], int], task: Callable[[], None], timers: Timers | None = None) -> None:
        """Runs a task at intervals of the broker's timers, or of `timers`."""
        timers = timers or self._timers

        def run() -> None:
            self._handles[name] = timers.call_later(interval_ms(), run)
            task()

        self._handles[name] = timers.call_later(interval_ms(), run)

    def _checked(self, directory: LogDirectoryState, is_well: bool) -> None:
        if is_well and not directory.is_online:
            log.warning("log directory %s can be written again", directory.path)
            self._replicas.reopen(directory)
        elif is_well:
            self._replicas.open_again(directory)

    def _checkpoints_written(self, errors: dict[str, StorageError | None], starts: list[tuple[Partition, str, int]]) -> None:
        self._is_writing_checkpoints = False
        for error in errors.values():
            if error is not None:
                log.error("cannot write checkpoints: %s", error)
        for partition, directory, start in starts:
            is_written = errors.get(directory.rpartition("/")[0], NOT_WRITTEN) is None
            if is_written and partition.log.directory == directory and self._is_here(partition):
                partition.on_log_start_noted(start)
        self._write_due_checkpoints()

    def _remove(self, paths: list[str], remove: Callable[[str], None]) -> None:
        for path in paths:
            try:
                remove(path)
            except StorageError as error:
                log.warning("%s", error)


def ignore(_result: object) -> None:
    """A callback that ignores the result."""
