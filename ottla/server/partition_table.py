"""The logs of this broker: found at the start, opened, created and deleted by orders of the controller, taken offline with their directory.

A partition is in the log directory where it was found at the start. A new one is placed in the directory that a client chose for it, else
in the online directory with the fewest partitions (a cordoned one only if all are cordoned). `directories/moves.py` moves it to another. If
a topic was deleted while a directory was offline, its logs there are removed later, or renamed to `-stray` if a new topic has the name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ottla.base.bounded_cache import BoundedCache
from ottla.base.cluster_metadata import ClusterMetadata
from ottla.base.errors import ApiError, DamagedLogError, DiskError, ErrorCode, StorageError
from ottla.base.log_config import LogConfig
from ottla.base.ports import Clock, Disk
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.producer_limit import ProducerLimit
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.directories.log_notes import Notes
from ottla.storage.companion_directories import refuse_duplicates
from ottla.storage.file_renames import STRAY_SUFFIX, deleted_directory, name_of_future
from ottla.storage.future_log import finish_replacement, is_complete
from ottla.storage.ledger import NO_PROOF, WATERMARK, Proof, enter
from ottla.storage.log import Log
from ottla.storage.offset_checkpoints import LogOffsets
from ottla.storage.open_files import OpenFiles
from ottla.storage.producers import ProducerStates
from ottla.storage.segment import LOG_SUFFIX
from ottla.storage.small_files import read_topic_id

log = logging.getLogger("ottla.storage")

SEALED_FILES_MAX = 512
"""Maximum number of sealed segments in the broker that keep their files and indexes open after a read."""
PREFERRED_BYTES_MAX = 4 << 20
"""Memory for `preferred`, in bytes."""


class PartitionTable:
    """All partitions of this broker, by name and by topic id."""

    def __init__(
        self, disk: Disk, clock: Clock, directories: Sequence[LogDirectoryState], make_partition: Callable[[Log, int], Partition],
        *, metadata: ClusterMetadata, producers_max: Callable[[], int], files_max: int = SEALED_FILES_MAX,
    ) -> None:  # fmt: skip
        self._metadata = metadata
        self._disk = disk
        self._clock = clock
        self._directories = list(directories)
        self._make_partition = make_partition
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        self._open_files = OpenFiles(files_max, min(SEALED_FILES_MAX, files_max // 2))
        self._unopened: dict[TopicPartition, StorageError | None] = {}  # replicas with a log that could not be opened: the error
        self._open_files.on_short = self._doubt
        self._undeleted: dict[str, bytes] = {}  # remaining directories of deleted partitions: topic ids
        self._awaited: dict[TopicPartition, None] = {}  # replicas that are about to be opened
        self._only = {directory.path: (directory,) for directory in self._directories}  # shared, because each partition has one
        self._found: dict[str, tuple[LogDirectoryState, ...]] = {}  # log directories by the name of a partition's directory
        self.on_doubt: Callable[[Partition, str], None] | None = None  # given to each partition (`repair/repairs.py`)
        self.preferred: BoundedCache[TopicPartition, str] = BoundedCache(PREFERRED_BYTES_MAX)
        """The preferred log directories of replicas that are not on this broker yet."""
        self.copies: dict[str, str] = {}
        """The paths of the copies of logs that are being moved to another directory, by the names of the logs' own directories."""
        for directory in self._directories:
            if directory.is_online:
                self._note_existing(directory)
        for name, places in self._found.items():
            if len(places) > 1:
                refuse_duplicates(disk, name, [place.path for place in places])
        self.producer_limit = ProducerLimit(self._producers, producers_max)
        self._finish_moves()

    def _producers(self) -> list[ProducerStates]:
        return [partition.log.producers for of_topic in self._by_topic.values() for partition in of_topic.values()]

    def _doubt(self, path: str) -> None:
        """Passes a file with a short read to the repairs of its partition."""
        topic, _, number = path.rpartition("/")[0].rpartition("/")[2].rpartition("-")
        partition = self.get(topic, int(number)) if number.isdecimal() else None
        if partition is not None and self.on_doubt is not None:
            self.on_doubt(partition, path)

    def get(self, topic: str, partition: int) -> Partition | None:
        of_topic = self._by_topic.get(topic)
        return of_topic.get(partition) if of_topic is not None else None

    def by_index(self, topic: str) -> Mapping[int, Partition]:
        return self._by_topic.get(topic, {})

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition | None:
        of_topic = self._by_id.get(topic_id)
        return of_topic.get(partition) if of_topic is not None else None

    def absence(self, topic: str, partition: int) -> ErrorCode:
        """Returns the error for a partition that is not in this table: NOT_LEADER_OR_FOLLOWER if it is on other brokers or about to be
        opened, KAFKA_STORAGE_ERROR if it could not be opened, UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        key = TopicPartition(topic, partition)
        if key in self._awaited:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if key in self._unopened:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_known = self._metadata.partition(topic, partition) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def await_opening(self, key: TopicPartition, topic_id: bytes) -> None:
        """Notes a replica that is about to be opened. Until then, requests for it get NOT_LEADER_OR_FOLLOWER, which clients retry."""
        if self.get(*key) is None:
            self._awaited[key] = None
            self._names[topic_id] = key.topic

    def topic_name(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic, even if this broker has no replica of it."""
        name = self._names.get(topic_id)
        if name is not None:
            return name
        topic = self._metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def all(self) -> Iterator[Partition]:
        for of_topic in list(self._by_topic.values()):
            yield from list(of_topic.values())

    def in_pieces(self, size: int = 200) -> Iterator[list[Partition]]:
        """Yields all partitions in lists of at most `size`. Partitions may be added and removed between the steps."""
        piece: list[Partition] = []
        for topic in list(self._by_topic):
            piece += self._by_topic.get(topic, {}).values()
            while len(piece) >= size:
                yield piece[:size]
                del piece[:size]
        yield piece

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_topic.get(topic, {}).values())

    def count(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def log_directories(self) -> list[LogDirectoryState]:
        return self._directories

    def directory_of(self, partition: Partition) -> LogDirectoryState:
        path = partition.log.directory.rpartition("/")[0]
        return next(directory for directory in self._directories if directory.path == path)

    def directory_at(self, path: str) -> LogDirectoryState | None:
        return next((directory for directory in self._directories if directory.path == path), None)

    def open(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = False, is_replaceable: bool = False
    ) -> Partition:
        """Returns the partition; opens or creates its log first if necessary. Raises `ApiError` KAFKA_STORAGE_ERROR if the disk fails, or
        the log is damaged, missing or possibly in an offline directory. `is_replaceable`: damaged or missing records are given up, because
        another replica has them or an operator accepts the loss."""
        self._awaited.pop(key, None)
        known = self.get(*key)
        if known is not None:
            return known
        directory = self._locate(key, topic_id, is_new=is_new, is_replaceable=is_replaceable)
        noted = directory.noted(key, topic_id)
        try:
            opened = self._open_log(directory, str(key), key, noted, config, directory.proof(key, topic_id), is_replaceable)
            if directory.has_stale_offsets(topic_id, key.partition):
                opened.durability.restart(opened.log_start_offset, opened.directory)  # the next recovery ignores the old offsets
        except StorageError as error:
            directory.keep_evidence(error)
            self._unopened[key] = error
            self._names[topic_id] = key.topic
            self._note_found(str(key), directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._unopened.pop(key, None)
        self._enter(opened, directory, topic_id)
        partition = self._make_partition(opened, min(noted.high_watermark, opened.log_end_offset))
        partition.state.admit_producer = self.producer_limit.admit
        partition.on_doubt = self.on_doubt
        directory.on_opened(key, noted)
        self._note_found(str(key), directory)
        self._by_topic.setdefault(key.topic, {})[key.partition] = partition
        self._by_id.setdefault(topic_id, {})[key.partition] = partition
        self._names[topic_id] = key.topic
        for base_offset in opened.known_damage:
            partition.doubt(base_offset)
        return partition

    def _enter(self, opened: Log, directory: LogDirectoryState, topic_id: bytes) -> None:
        """Adds the log to the ledger of its directory, and removes it from the ledgers of the others."""
        partition = opened.topic_partition.partition
        for other in self._directories:
            if other is not directory and other.is_claimed:
                other.ledger.free(topic_id, partition)
        enter(opened, directory.ledger.row(topic_id, partition))

    def _on_removed(self, key: TopicPartition, topic_id: bytes) -> None:
        for directory in self._directories:
            if directory.is_claimed:
                directory.on_removed(topic_id, key.partition)

    def _open_log(
        self, directory: LogDirectoryState, name: str, key: TopicPartition, noted: LogOffsets, config: LogConfig,
        proof: Proof = NO_PROOF, is_replaceable: bool = False,
    ) -> Log:  # fmt: skip
        return Log.open(
            self._disk,
            f"{directory.path}/{name}",
            key,
            config,
            now_ms=self._clock.wall_ms(),
            was_clean=directory.was_clean and key not in self._unopened,
            recovery_point=noted.recovery_point,
            log_start_offset=noted.log_start_offset,
            clean_offset=noted.clean_offset,
            is_sync_doubtful=directory.is_sync_doubtful,
            topic_id=noted.topic_id,
            open_files=self._open_files,
            notes=Notes(key),
            proof=proof,
            is_replaceable=is_replaceable,
        )

    # Copies of logs in other directories (`directories/moves.py`)

    def open_copy(self, partition: Partition, path: str) -> Log:
        """Opens or creates the copy of this partition's log at `path`. Raises `StorageError`."""
        parent, _, name = path.rpartition("/")
        directory, key = self.directory_at(parent), partition.topic_partition
        assert directory is not None, f"{path} lies in no log directory"
        opened = self._open_log(directory, name, key, directory.noted(key, partition.topic_id), partition.log.config)
        directory.forget(key)
        directory.copies[key] = partition, opened
        self.copies[str(key)] = path
        return opened

    def close_copy(self, partition: Partition, copy: Log) -> None:
        """Forgets that the copy is open. Its directory is kept, so that the move can continue."""
        directory = self.directory_at(copy.directory.rpartition("/")[0])
        if directory is not None:
            directory.copies.pop(partition.topic_partition, None)

    def on_moved(self, partition: Partition, source: LogDirectoryState, clean_offset: int) -> None:
        """Called when the partition's log has moved from `source` to another directory. `clean_offset` is the end of its compacted part."""
        key, directory = partition.topic_partition, self.directory_of(partition)
        self.copies.pop(str(key), None)
        directory.copies.pop(key, None)
        self._forget_place(key, source)
        self._note_found(str(key), directory)
        self._enter(partition.log, directory, partition.topic_id)
        partition.log.row.cells[partition.log.row.at + WATERMARK] = partition.high_watermark
        if clean_offset:
            directory.clean_offsets[key] = clean_offset

    def is_moving(self, partition: Partition) -> bool:
        return bool(self.copies) and str(partition.topic_partition) in self.copies

    def _finish_moves(self) -> None:
        """Completes interrupted moves: a complete copy gets the name of its log if the log no longer exists. Does nothing while a directory
        could not be read since the start, because the log may be there."""
        if all(directory.is_claimed for directory in self._directories):
            for name, path in list(self.copies.items()):
                directory = self.directory_at(path.rpartition("/")[0])
                if directory is not None and name not in self._found and is_complete(self._disk, path):
                    self._finish_move(name, path, directory)

    def _finish_move(self, name: str, path: str, directory: LogDirectoryState) -> None:
        try:
            finish_replacement(self._disk, path, f"{directory.path}/{name}")
        except StorageError as error:
            log.error("%s cannot be renamed to %s: %s", path, name, error)
            return
        del self.copies[name]
        self._note_found(name, directory)

    def delete(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """Drops the partition. Returns the new path of its renamed directory, which the caller removes later; None if there is none."""
        partition = self.get(*key)
        if partition is None:
            return self._delete_unopened(key, topic_id)
        directory = self.directory_of(partition)
        self._forget(key, partition)
        self._forget_place(key, directory)
        path = partition.log.directory
        try:
            deleted = partition.log.delete()
            self._on_removed(key, topic_id)
            return deleted
        except StorageError:
            self._undeleted[path] = topic_id
            raise

    def _delete_unopened(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """Deletes the directory of a log that is not open: a damaged one, or one with an interrupted deletion. A directory of another topic
        is kept."""
        self._unopened.pop(key, None)
        self._awaited.pop(key, None)
        if topic_id not in self._by_id:
            self._names.pop(topic_id, None)
        self._on_removed(key, topic_id)
        for directory in self._found.get(str(key), ()):
            path = f"{directory.path}/{key}"
            target = self._delete_directory(path, topic_id)
            if target is not None:
                self._forget_place(key, directory)
                return target
        return None

    def _delete_directory(self, path: str, topic_id: bytes) -> str | None:
        """Renames the directory if it belongs to this topic or names no topic. Returns the new path, or None."""
        if not self._disk.exists(path) or read_topic_id(self._disk, path) not in (None, topic_id):
            return None
        target = deleted_directory(self._disk, path, topic_id)
        self._disk.rename(path, target)
        return target

    def strays(self, assigned: Collection[tuple[bytes, int]]) -> list[tuple[TopicPartition, bytes]]:
        """Returns the logs in online directories, open or not, that are not in `assigned` (topic id, partition). Logs without a topic id
        are skipped. Removes all logs that are not in `assigned` from the ledgers."""
        for directory in self._directories:
            if directory.is_claimed:
                directory.ledger.keep(assigned)
        found = []
        for name, places in self._found.items():
            topic, _, number = name.rpartition("-")
            if not number.isdecimal():
                continue
            key = TopicPartition(topic, int(number))
            partition = self.get(*key)
            for directory in [place for place in places if place.is_online]:
                topic_id = partition.topic_id if partition is not None else read_topic_id(self._disk, f"{directory.path}/{name}")
                if topic_id is not None and (topic_id, key.partition) not in assigned:
                    found.append((key, topic_id))
        return found

    def take_offline(self, directory: LogDirectoryState, reason: str) -> list[Partition]:
        """Takes a failed directory and its partitions offline. Returns these partitions."""
        if directory.is_online:
            log.error("log directory %s goes offline: %s", directory.path, reason)
        directory.go_offline(reason)
        stopped = [partition for partition in self.all() if self.directory_of(partition) is directory]
        for partition in stopped:
            partition.go_offline(reason)
        return stopped

    def drop(self, partitions: Sequence[Partition]) -> None:
        """Drops damaged partitions, or partitions of an offline directory, so that `open` reads and checks them again."""
        for partition in partitions:
            self.directory_of(partition).note(partition)
            self._forget(partition.topic_partition, partition)
            self._unopened[partition.topic_partition] = None

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

    def _note_existing(self, directory: LogDirectoryState) -> None:
        for name in directory.partition_names():
            copied = name_of_future(name)
            if copied is None:
                self._note_found(name, directory)
            else:
                self.copies.setdefault(copied, f"{directory.path}/{name}")

    def _note_found(self, name: str, directory: LogDirectoryState) -> None:
        places = self._found.get(name)
        if places is None:
            self._found[name] = self._only[directory.path]
        elif directory not in places:
            self._found[name] = (*places, directory)

    def _forget_place(self, key: TopicPartition, directory: LogDirectoryState) -> None:
        directory.forget(key)
        name = str(key)
        places = tuple(place for place in self._found.get(name, ()) if place is not directory)
        self._found.pop(name, None)
        if places:
            self._found[name] = places

    def scan(self, directory: LogDirectoryState) -> list[str]:
        """Finds the logs in a directory that has become online, and completes deletions that failed there. Returns the paths that the
        caller removes later."""
        removed = []
        for path, topic_id in list(self._undeleted.items()):
            if path.rpartition("/")[0] == directory.path:
                target = self._delete_directory(path, topic_id)
                del self._undeleted[path]
                removed += [target] if target is not None else []
        self._note_existing(directory)
        self._finish_moves()
        return removed

    def unopened_in(self, directory: LogDirectoryState) -> list[TopicPartition]:
        """Returns the replicas in this directory with logs that could not be opened because of a disk failure, not of damage."""
        return [key for key, error in self._unopened.items() if isinstance(error, DiskError) and directory in self._found.get(str(key), ())]

    def is_whole(self, directory: LogDirectoryState) -> bool:
        """Whether every log in this directory is intact: it is open and online, or was not opened since the last clean stop."""
        is_missing = any(directory in self._found.get(str(key), ()) for key in self._unopened)
        if not is_missing and not directory.was_clean:
            is_open = {str(found.topic_partition) for found in self.all()}
            is_missing = any(directory in places and name not in is_open for name, places in self._found.items())
            here = [name for name, path in self.copies.items() if path.rpartition("/")[0] == directory.path]
            is_missing = is_missing or len(here) > len(directory.copies)
        return not is_missing and all(found.is_online or self.directory_of(found) is not directory for found in self.all())

    def _locate(self, key: TopicPartition, topic_id: bytes, *, is_new: bool, is_replaceable: bool) -> LogDirectoryState:
        """Returns the directory of an existing log, or chooses one for a new log. Raises `ApiError` if that is impossible."""
        try:
            directory = self._find(key, topic_id, is_new)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if directory is None:
            if not is_new:
                self._judge_missing(key, topic_id, is_replaceable)
            directory = self._place(key)
            directory.forget(key)
            if any(place.is_claimed and place.ledger.has(topic_id, key.partition) for place in self._directories):
                self._on_removed(key, topic_id)
        if not directory.is_online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline: {directory.reason}")
        return directory

    def _find(self, key: TopicPartition, topic_id: bytes, is_new: bool) -> LogDirectoryState | None:
        """Returns the directory with this topic's log, if there is one. For a new log, sets aside directories of former topics with the
        same name."""
        places = self._found.get(str(key), ())
        if not is_new and len(places) < 2:
            return places[0] if places else None  # A directory of another topic is refused by `Log.open` (I41).
        for directory in places:
            if directory.is_online and self._is_of(f"{directory.path}/{key}", topic_id):
                return directory
        if not is_new:
            return places[0]
        for directory in [place for place in places if place.is_online]:
            self._set_aside(key, directory)
        return None

    def _is_of(self, path: str, topic_id: bytes) -> bool:
        """Whether a partition's directory belongs to this topic. A directory without a topic id belongs to it if there are no segments."""
        found = read_topic_id(self._disk, path)
        if found is not None:
            return found == topic_id
        return not self._disk.exists(path) or not any(name.endswith(LOG_SUFFIX) for name in self._disk.listdir(path))

    def _set_aside(self, key: TopicPartition, directory: LogDirectoryState) -> None:
        """Renames the directory of a deleted topic, because a new topic's partition needs its name."""
        path = f"{directory.path}/{key}"
        found = read_topic_id(self._disk, path)
        target = deleted_directory(self._disk, path, found or bytes(16), STRAY_SUFFIX)
        log.warning("%s belongs to a deleted topic of the same name; it is renamed to %s", path, target)
        self._disk.rename(path, target)
        self._forget_place(key, directory)

    def _judge_missing(self, key: TopicPartition, topic_id: bytes, is_replaceable: bool) -> None:
        """Raises `ApiError` instead of creating an empty log, unless it is certain that the log did not exist here: an empty log would be
        taken for the replica's records."""
        unknown = next((directory.path for directory in self._directories if not directory.is_claimed), None)
        held = next((place for place in self._directories if place.is_claimed and place.ledger.has(topic_id, key.partition)), None)
        reason: DamagedLogError | None = None
        if unknown is not None:
            message = f"it may lie in {unknown}, which is offline"
        elif held is not None:
            proof = held.ledger.proof(topic_id, key.partition)
            message = f"{held.path}/{key} is missing, and it held the records up to offset {max(proof.end, proof.synced) - 1}"
            if is_replaceable:
                log.warning("%s: %s; the log begins again without them", key, message)
                return
            reason = DamagedLogError(message, f"{held.path}/{key}", first_offset=0, last_offset=proof.end - 1)
        elif all(directory.ledger.is_known for directory in self._directories) or is_replaceable:
            return
        else:
            message = f"its directory is missing in {', '.join(directory.path for directory in self._directories)}"
        self._unopened[key] = reason
        self._names[topic_id] = key.topic
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message) from reason

    def _place(self, key: TopicPartition) -> LogDirectoryState:
        wanted = self.directory_at(self.preferred.forget(key) or "")
        return wanted if wanted is not None and wanted.is_online else self._choose()

    def _choose(self) -> LogDirectoryState:
        online = [directory for directory in self._directories if directory.is_online]
        if not online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
        online = [directory for directory in online if not directory.is_cordoned] or online
        if len(online) == 1:
            return online[0]
        counts = Counter(self.directory_of(partition).path for partition in self.all())
        return min(online, key=lambda directory: counts[directory.path])
