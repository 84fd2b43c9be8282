"""Moves replicas between the log directories of this broker while they serve (AlterReplicaLogDirs, KIP-113).

The log is copied into a directory `<topic>-<partition>.<unique>-future` of the other log directory, in pieces that are read in a thread and
appended on the loop. When little remains, the copy replaces the log (`storage/future_log.py`). The log is not compacted meanwhile. Replicas
are copied in the order in which their moves were started. The number of copies at a time is limited by `num.replica.alter.log.dirs.threads`
(default: the number of log directories) and by `AT_A_TIME_MAX`. All copies share `replica.alter.log.dirs.io.max.bytes.per.second`.

The directory of the copy marks an unfinished move. So the move continues when the replica is opened again: after a restart, or when a
failed directory works again. An unreadable copy is made again. A request with another destination removes the old copy; a request for the
replica's present directory ends the move. Unreadable bytes of the log end it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

from ottla.base.config import BrokerConfig
from ottla.base.errors import ApiError, DamagedLogError, ErrorCode, StorageError
from ottla.base.ports import Clock, Disk, Random, Threads, Timers
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.throttle import ReplicationThrottle
from ottla.server.directories.log_directories import FREE_BYTES_MIN, LogDirectoryState
from ottla.server.partition_table import PartitionTable
from ottla.storage.file_renames import deleted_directory, future_directory
from ottla.storage.future_log import FutureLog
from ottla.storage.small_files import read_topic_id

log = logging.getLogger("ottla.storage")

PIECE_BYTES = 2 << 20
LAST_BYTES = 1 << 18
"""The copy replaces the log in one iteration of the event loop when at most this many bytes are left to copy, and fewer than this are not
synced."""
SYNC_BYTES = 64 << 20
"""The copy is synced when this many bytes were appended since the last sync."""
PAUSE_MS = 50
"""Pause of all copies when they exceed their rate, in milliseconds."""
AT_A_TIME_MAX = 3
"""Maximum number of replicas that are copied at a time. Fewer than the threads (`adapters/threads.py`), because syncs need threads too."""

Result = TypeVar("Result")
RemoveLater = Callable[[str, int], None]
OnFailure = Callable[[LogDirectoryState, str], object]


class _Move:
    """The move of one replica to another directory."""

    __slots__ = ("clean_offset", "future", "is_busy", "partition", "unsynced_bytes")

    def __init__(self, partition: Partition, future: FutureLog, clean_offset: int) -> None:
        self.partition = partition
        self.future = future
        self.clean_offset = clean_offset
        self.unsynced_bytes = 0
        self.is_busy = False
        """Whether a thread reads a piece of the log or syncs the copy."""


class DirectoryMoves:
    """The moves of one broker. `fail` takes a log directory offline."""

    def __init__(
        self, *, config: BrokerConfig, clock: Clock, timers: Timers, random: Random, threads: Threads, disk: Disk,
        partitions: PartitionTable, remove_later: RemoveLater, fail: OnFailure,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._random = random
        self._threads = threads
        self._partitions = partitions
        self._remove_later = remove_later
        self._fail = fail
        self._config = config
        self._throttle = ReplicationThrottle(lambda: config.replica_alter_log_dirs_io_max_bytes_per_second)
        self._moves: dict[TopicPartition, _Move] = {}
        self._is_paused = False
        self._is_closed = False

    # Requests

    def move(self, partition: Partition, path: str) -> ErrorCode:
        """Begins to move a replica, changes the destination of its move, or ends the move."""
        directory, key = self._partitions.directory_at(path), partition.topic_partition
        if directory is None or not directory.is_online:
            return self.refusal(path)
        if not partition.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._partitions.copies.get(str(key), "").rpartition("/")[0] == path:
            self.resume(partition)
            return ErrorCode.NONE
        self.give_up(key)
        if self._partitions.directory_of(partition) is directory:
            return ErrorCode.NONE
        name = future_directory(str(key), self._random.token_bytes(16))
        if name is None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not self._has_space(directory, partition.log.size_bytes):
            log.error("%s cannot move to %s: there is not enough free space", key, path)
            return ErrorCode.KAFKA_STORAGE_ERROR
        log.info("%s moves from %s to %s", key, self._partitions.directory_of(partition).path, path)
        return self._begin(partition, f"{path}/{name}")

    def refusal(self, path: str) -> ErrorCode:
        """Returns the error for a directory that is not one of `log.dirs`, is cordoned or is offline, else NONE."""
        directory = self._partitions.directory_at(path)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory.is_cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return ErrorCode.NONE if directory.is_online else ErrorCode.KAFKA_STORAGE_ERROR

    def prefer(self, key: TopicPartition, path: str) -> ErrorCode:
        """Notes the directory for a replica that will be created later. Returns REPLICA_NOT_AVAILABLE, as Kafka does, or another error."""
        refusal = self.refusal(path)
        if refusal:
            return refusal
        self._partitions.preferred.remember(key, path)
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def under_way(self) -> Iterator[FutureLog]:
        return (move.future for move in self._moves.values())

    # Events of replicas and directories

    def resume(self, partition: Partition) -> None:
        """Continues the move of a replica that has been opened, if it has one. Ends the move if the replica is in that directory already,
        or if the copy belongs to an older topic of the same name."""
        if not self._partitions.is_moving(partition):
            return
        key = partition.topic_partition
        path = self._partitions.copies[str(key)]
        directory = self._partitions.directory_at(path.rpartition("/")[0])
        if directory is None or not directory.is_online:
            return
        move = self._moves.get(key)
        if directory is self._partitions.directory_of(partition) or read_topic_id(self._disk, path) not in (None, partition.topic_id):
            self.give_up(key)
        elif move is None:
            self._begin(partition, path)
        elif move.partition is not partition:  # the log was opened again
            self._moves[key] = _Move(partition, FutureLog(partition.log, move.future.copy), 0)
            directory.copies[key] = partition, move.future.copy
        self._timers.call_soon(self._run)

    def resume_into(self, directory: LogDirectoryState) -> None:
        """Continues all moves into a directory that can be read again."""
        for partition in self._partitions.all():
            if partition.is_online and self._partitions.copies.get(str(partition.topic_partition), "").startswith(f"{directory.path}/"):
                self.resume(partition)

    def give_up(self, key: TopicPartition) -> None:
        """Ends the move of a replica, if it has one, and removes the copy if the copy's directory is online."""
        move = self._moves.get(key)
        if move is not None:
            self._stop(move)
        path = self._partitions.copies.pop(str(key), None)
        if path is not None:
            self._discard(path)

    def on_offline(self, directory: LogDirectoryState) -> None:
        for move in list(self._moves.values()):
            if move.future.copy.directory.rpartition("/")[0] == directory.path:
                self._stop(move)

    def close(self) -> None:
        """Stops all moves and closes the copies cleanly. The next start continues them."""
        self._is_closed = True
        for move in self._moves.values():
            move.future.close()
            try:
                move.future.copy.close(clean=True)
            except StorageError as error:
                log.error("%s: %s", move.future.copy.directory, error)
                self._destination(move.future).go_offline(str(error))

    # Copying

    def _begin(self, partition: Partition, path: str) -> ErrorCode:
        source = self._partitions.directory_of(partition)
        try:
            future = self._open(partition, path)
        except StorageError as error:
            self._failed(path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_new = future.copy.log_end_offset == future.copy.log_start_offset
        clean_offset = source.clean_offsets.get(partition.topic_partition, 0) if is_new else 0
        self._moves[partition.topic_partition] = _Move(partition, future, clean_offset)
        self._timers.call_soon(self._run)
        return ErrorCode.NONE

    def _open(self, partition: Partition, path: str) -> FutureLog:
        """Opens or creates the copy. An unreadable copy is removed and made again, because the log has all records. Raises `StorageError`.
        """
        try:
            return FutureLog(partition.log, self._partitions.open_copy(partition, path))
        except StorageError as error:
            log.warning("%s is copied again from the beginning: %s", partition.topic_partition, error)
            self._discard(path)
            return FutureLog(partition.log, self._partitions.open_copy(partition, path))

    def _current(self) -> list[_Move]:
        """Returns the moves that copy at present, the oldest first."""
        wanted = self._config.num_replica_alter_log_dirs_threads
        at_a_time = min(AT_A_TIME_MAX, len(self._partitions.log_directories()) if wanted is None else max(1, wanted))
        return list(islice((move for move in self._moves.values() if move.partition.is_online), at_a_time))

    def _run(self) -> None:
        """Executes the next step of each move that copies at present: copies a piece, syncs the copy, or replaces the log."""
        if self._is_closed or self._is_paused:
            return
        for move in self._current():
            if move.is_busy or not self._is_current(move):
                continue
            if move.future.error is not None:
                self._failed(move.future.copy.directory, move.future.error)
            elif not self._throttle.allows(self._clock.monotonic_ms()):
                self._pause()
                return
            else:
                self._step(move)

    def _is_current(self, move: _Move) -> bool:
        return self._moves.get(move.partition.topic_partition) is move

    def _step(self, move: _Move) -> None:
        future = move.future
        try:
            is_nearly_done = future.is_left_at_most(LAST_BYTES)
            if move.unsynced_bytes >= (LAST_BYTES if is_nearly_done else SYNC_BYTES):
                self._sync(move)
                return
            rate = self._config.replica_alter_log_dirs_io_max_bytes_per_second
            found = None if is_nearly_done else future.next_piece(min(PIECE_BYTES, rate))
        except StorageError as error:
            self._stumbled(move, error)
            return
        if found is None:
            self._replace(move)
            return
        number, piece = found
        self._throttle.note(len(piece), self._clock.monotonic_ms())
        self._in_thread(move, piece.read, lambda batches: self._append(move, number, batches))

    def _append(self, move: _Move, number: int, batches: bytes) -> None:
        move.future.append(number, batches)
        move.unsynced_bytes += len(batches)

    def _sync(self, move: _Move) -> None:
        end, files = move.future.unsynced()

        def sync() -> int:
            for file in files:
                file.sync()
            return end

        self._in_thread(move, sync, lambda to: self._synced(move, to))

    def _synced(self, move: _Move, end: int) -> None:
        move.unsynced_bytes = 0
        move.future.copy.mark_flushed(end)
        if not self._has_space(self._destination(move.future), 0):
            log.error("%s does not move to %s: the disk is nearly full", move.partition.topic_partition, move.future.copy.directory)
            self.give_up(move.partition.topic_partition)

    def _replace(self, move: _Move) -> None:
        partition, source = move.partition, self._partitions.directory_of(move.partition)
        key, begun = partition.topic_partition, move.future.copy.directory
        try:
            old = move.future.replace(PIECE_BYTES)
        except ApiError as error:
            self._refused(move, error.message)
            return
        except StorageError as error:
            if self._partitions.directory_of(partition) is source:
                self._stumbled(move, error)
                return
            del self._moves[key]  # the copy has replaced the log
            self._partitions.on_moved(partition, source, 0)
            self._failed(error.path or begun, error)
            return
        del self._moves[key]
        self._partitions.on_moved(partition, source, move.clean_offset)
        self._remove_later(old, partition.log.config.file_delete_delay_ms)
        log.info("%s has moved from %s to %s", key, source.path, self._partitions.directory_of(partition).path)
        self._timers.call_soon(self._run)

    def _in_thread(self, move: _Move, work: Callable[[], Result], done: Callable[[Result], None]) -> None:
        """Runs `work` in a thread. If the move has not ended meanwhile, calls `done` with the result and continues."""

        def guarded() -> Result | StorageError:
            try:
                return work()
            except StorageError as error:
                return error

        def finished(result: Result | StorageError) -> None:
            move.is_busy = False
            if self._is_closed:
                return
            self._timers.call_soon(self._run)
            if not self._is_current(move):
                return
            try:
                if isinstance(result, StorageError):
                    raise result
                done(result)
            except ApiError as error:
                self._refused(move, error.message)
            except StorageError as error:
                self._stumbled(move, error)

        move.is_busy = True
        self._threads.run(guarded, finished)

    def _pause(self) -> None:
        self._is_paused = True

        def over() -> None:
            self._is_paused = False
            self._run()

        self._timers.call_later(PAUSE_MS, over)

    # Ends

    def _stumbled(self, move: _Move, error: StorageError) -> None:
        """Handles a failure in the middle of a move. Unreadable bytes end this move, and the log is checked. After any other failure the
        log directory is taken offline."""
        if not isinstance(error, DamagedLogError):
            self._failed(error.path or move.future.copy.directory, error)
            return
        if error.path.startswith(f"{move.partition.log.directory}/"):
            move.partition.read_failed(error)
        self._refused(move, str(error))

    def _refused(self, move: _Move, reason: str) -> None:
        log.error("%s does not move: %s", move.partition.topic_partition, reason)
        self.give_up(move.partition.topic_partition)

    def _stop(self, move: _Move) -> None:
        self._moves.pop(move.partition.topic_partition, None)
        move.future.close()
        self._partitions.close_copy(move.partition, move.future.copy)
        for segment in move.future.copy.segments:
            segment.release_file()

    def _discard(self, path: str) -> None:
        """Renames the copy, so that no start continues it, and removes it later."""
        directory = self._partitions.directory_at(path.rpartition("/")[0])
        disk = self._disk
        if directory is None or not directory.is_online:
            return
        try:
            if disk.exists(path):
                target = deleted_directory(disk, path, bytes(16))
                disk.rename(path, target)
                self._remove_later(target, 0)
        except StorageError as error:
            self._failed(path, error)

    def _failed(self, path: str, error: StorageError) -> None:
        """Takes the log directory of `path` offline after its disk failed, with all copies in it."""
        for directory in self._partitions.log_directories():
            if path.startswith(f"{directory.path}/") and directory.is_online:
                self._fail(directory, str(error))
        self._timers.call_soon(self._run)

    def _destination(self, future: FutureLog) -> LogDirectoryState:
        found = self._partitions.directory_at(future.copy.directory.rpartition("/")[0])
        assert found is not None, f"{future.copy.directory} lies in no log directory"
        return found

    def _has_space(self, directory: LogDirectoryState, size_bytes: int) -> bool:
        try:
            return directory.free_bytes()[1] >= size_bytes + FREE_BYTES_MIN
        except StorageError:
            return False
