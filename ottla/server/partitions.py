"""The logs that live on this broker: opened at start, made and deleted on the controller's word, taken offline with their directory.

A partition lives in one of `log.dirs`: where its directory was found at the start, else in the online directory with the fewest
partitions. The look-up tables by topic name and by topic id are what the hot paths of Produce and Fetch use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Clock, Disk
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.server.log_directories import LogDirectoryState
from ottla.storage.checkpoints import read_topic_id
from ottla.storage.log import Log
from ottla.storage.open_files import OpenFiles
from ottla.storage.replacing import deleted_directory

log = logging.getLogger("ottla.storage")

SEALED_FILES_MAX = 512
"""Sealed segments that keep their file and their indexes after a read, in the whole broker."""


class Notes(list[str]):
    """What a log tells of its files, when it is opened and whenever it finds damage later: a line each in the broker's log."""

    def __init__(self, key: TopicPartition) -> None:
        super().__init__()
        self._prefix = f"{key}: "

    def append(self, note: str) -> None:
        super().append(note)
        log.warning("%s%s", "" if note.startswith(self._prefix) else self._prefix, note)


class PartitionTable:
    """All partitions of this broker, by name and by topic id."""

    def __init__(
        self, disk: Disk, clock: Clock, directories: Sequence[LogDirectoryState], make_partition: Callable[[Log, int], Partition],
        *, files_max: int = SEALED_FILES_MAX,
    ) -> None:  # fmt: skip
        self._disk = disk
        self._clock = clock
        self._directories = list(directories)
        self._make_partition = make_partition
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        self._open_files = OpenFiles(files_max, min(SEALED_FILES_MAX, files_max // 2))
        self._unopened: dict[TopicPartition, bytes] = {}  # replicas whose log is damaged, and the ids of their topics
        self._awaited: dict[TopicPartition, None] = {}  # replicas that will be opened or made in a moment
        self._found = self._find_existing()

    def get(self, topic: str, partition: int) -> Partition | None:
        of_topic = self._by_topic.get(topic)
        return of_topic.get(partition) if of_topic is not None else None

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        of_topic = self._by_id.get(topic_id)
        return of_topic.get(partition) if of_topic is not None else None

    def absence(self, topic: str, partition: int) -> ErrorCode:
        key = TopicPartition(topic, partition)
        if key in self._awaited:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.KAFKA_STORAGE_ERROR if key in self._unopened else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def await_opening(self, key: TopicPartition, topic_id: bytes) -> None:
        """The metadata names this replica already; until it is open, clients are told to try again."""
        if self.get(*key) is None:
            self._awaited[key] = None
            self._names[topic_id] = key.topic

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def all(self) -> Iterator[Partition]:
        for of_topic in list(self._by_topic.values()):
            yield from list(of_topic.values())

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_topic.get(topic, {}).values())

    def count(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def log_directories(self) -> list[LogDirectoryState]:
        return self._directories

    def directory_of(self, partition: Partition) -> LogDirectoryState:
        path = partition.log.directory.rpartition("/")[0]
        return next(directory for directory in self._directories if directory.path == path)

    def open(self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = False) -> Partition:
        """The partition, opened or created. Raises `ApiError` KAFKA_STORAGE_ERROR if its directory is offline or damaged, or may be."""
        self._awaited.pop(key, None)
        known = self.get(*key)
        if known is not None:
            return known
        directory = self._found.get(str(key))
        if directory is None:
            directory = self._place(key, topic_id, is_new)
            directory.forget(key)
        if not directory.is_online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline: {directory.reason}")
        noted = directory.noted(key, topic_id)
        try:
            opened = Log.open(
                self._disk,
                f"{directory.path}/{key}",
                key,
                config,
                now_ms=self._clock.wall_ms(),
                was_clean=directory.was_clean,
                recovery_point=noted.recovery_point,
                log_start_offset=noted.log_start_offset,
                clean_offset=noted.clean_offset,
                topic_id=topic_id,
                open_files=self._open_files,
                notes=Notes(key),
            )
        except StorageError as error:
            self._unopened[key] = topic_id
            self._names[topic_id] = key.topic
            self._found[str(key)] = directory
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._unopened.pop(key, None)
        partition = self._make_partition(opened, min(noted.high_watermark, opened.log_end_offset))
        directory.on_opened(key, noted)
        self._found[str(key)] = directory
        self._by_topic.setdefault(key.topic, {})[key.partition] = partition
        self._by_id.setdefault(topic_id, {})[key.partition] = partition
        self._names[topic_id] = key.topic
        return partition

    def delete(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """Forgets the partition and renames its directory; the caller removes the returned path later."""
        partition = self.get(*key)
        if partition is None:
            return self._delete_unopened(key, topic_id)
        self._forget(key, partition)
        self._found.pop(str(key), None)
        self.directory_of(partition).forget(key)
        return partition.log.delete()

    def _delete_unopened(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """The log is damaged, or the deletion was begun before this start: its directory is all there is. Another topic's stays."""
        self._unopened.pop(key, None)
        self._awaited.pop(key, None)
        if topic_id not in self._by_id:
            self._names.pop(topic_id, None)
        directory = self._found.get(str(key))
        if directory is None:
            return None
        path = f"{directory.path}/{key}"
        if not self._disk.exists(path) or read_topic_id(self._disk, path) not in (None, topic_id):
            return None
        target = deleted_directory(self._disk, path, topic_id)
        self._disk.rename(path, target)
        del self._found[str(key)]
        directory.forget(key)
        return target

    def take_offline(self, directory: LogDirectoryState, reason: str) -> list[Partition]:
        """Stops every partition of a failed directory; returns those that were online."""
        if directory.is_online:
            log.error("log directory %s goes offline: %s", directory.path, reason)
        directory.go_offline(reason)
        stopped = [partition for partition in self.all() if self.directory_of(partition) is directory]
        for partition in stopped:
            partition.go_offline(reason)
        return stopped

    def drop(self, partitions: Sequence[Partition]) -> None:
        """Forgets partitions of an offline directory, so that `open` reads them anew."""
        for partition in partitions:
            self.directory_of(partition).note(partition)
            self._forget(partition.topic_partition, partition)

    def _forget(self, key: TopicPartition, partition: Partition) -> None:
        of_topic = self._by_topic[key.topic]
        del of_topic[key.partition]
        topic_id = partition.topic_id
        self._by_id[topic_id].pop(key.partition, None)
        if not of_topic:
            del self._by_topic[key.topic]
        if not self._by_id[topic_id]:
            del self._by_id[topic_id]
            self._names.pop(topic_id, None)

    def _find_existing(self) -> dict[str, LogDirectoryState]:
        found: dict[str, LogDirectoryState] = {}
        for directory in self._directories:
            if directory.is_online:
                for name in directory.partition_names():
                    found[name] = directory
        return found

    def scan(self, directory: LogDirectoryState) -> None:
        """Takes note of what lies in a directory that has come online only now."""
        for name in directory.partition_names():
            self._found.setdefault(name, directory)

    def _place(self, key: TopicPartition, topic_id: bytes, is_new: bool) -> LogDirectoryState:
        """Where a replica goes that was not found. One that is not new may lie in a directory that nobody could look into: an empty log in
        its place would be taken for the truth."""
        unknown = next((directory.path for directory in self._directories if not directory.is_claimed), None)
        if unknown is not None and not is_new:
            self._unopened[key] = topic_id
            self._names[topic_id] = key.topic
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"it may lie in {unknown}, which is offline")
        return self._choose()

    def _choose(self) -> LogDirectoryState:
        online = [directory for directory in self._directories if directory.is_online]
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        if len(online) == 1:
            return online[0]
        counts = {directory.path: 0 for directory in online}
        for partition in self.all():
            path = self.directory_of(partition).path
            if path in counts:
                counts[path] += 1
        return min(online, key=lambda directory: counts[directory.path])
