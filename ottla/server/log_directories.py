"""The entries of `log.dirs`: whose they are, whether they work, and the checkpoints that lie in them.

A directory belongs to one broker of one cluster (`meta.properties`) and to one process at a time (`.lock`). When a read, write or sync in
it fails it goes offline: its logs are not touched again until `recheck` finds that it can be written, so a full disk heals without a
restart. Checkpoints (recovery points, high watermarks, log starts) are written together for all partitions of the directory, that of
compaction when a log was compacted; a damaged one is told and treated as lost, which costs a longer recovery or a larger round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.adapters.lock import DirectoryLock, DirectoryRefused
from ottla.base.errors import StorageError
from ottla.base.ports import Disk, Random
from ottla.base.types import TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.replication.partition import Partition
from ottla.storage import checkpoints
from ottla.storage.checkpoints import MetaProperties

log = logging.getLogger("ottla.storage")

FREE_BYTES_MIN = 16 << 20
"""A directory that went offline comes back only with this much room."""

DELETED_SUFFIX = "-delete"


class LogDirectoryState:
    """One log directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.is_online = True
        self.reason = ""
        self.was_clean = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.clean_offsets: dict[TopicPartition, int] = {}
        self.is_claimed = False
        """Whether its contents are known: not while it has been offline since the start."""
        self._disk = disk
        self._lock: DirectoryLock | None = None
        self._owner: tuple[int, str, Random] | None = None

    def lock(self) -> None:
        """Takes the directory for this process. Raises `DirectoryRefused` when another process has it."""
        self._disk.makedirs(self.path)
        self._lock = DirectoryLock(self.path)

    def cluster_id(self) -> str | None:
        """The cluster that the directory belongs to, None if it is new."""
        found = checkpoints.read_meta_properties(self._disk, self.path)
        return found.cluster_id if found is not None else None

    def belong_to(self, broker_id: int, cluster_id: str, random: Random) -> None:
        """Whose it must be, if it can be claimed only later."""
        self._owner = (broker_id, cluster_id, random)

    def claim(self, broker_id: int, cluster_id: str, random: Random) -> None:
        """Makes sure that the directory belongs to this broker, and reads its checkpoints. Raises `DirectoryRefused` if it does not."""
        self._check_owner(broker_id, cluster_id, random)
        self.remove_deleted()
        self.was_clean = checkpoints.take_clean_shutdown(self._disk, self.path)
        self.recovery_points = self._read_offsets(checkpoints.RECOVERY_POINT_FILE)
        self.high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARK_FILE)
        self.log_starts = self._read_offsets(checkpoints.LOG_START_FILE)
        self.clean_offsets = self._read_offsets(checkpoints.CLEANER_OFFSET_FILE)
        self.is_claimed = True

    def partition_names(self) -> list[str]:
        """The names of the partition directories in here."""
        return [
            name
            for name in self._disk.listdir(self.path)
            if "-" in name and not name.startswith(".") and self._disk.exists(f"{self.path}/{name}/{checkpoints.PARTITION_METADATA_FILE}")
        ]

    def remove_deleted(self) -> None:
        """Finishes the deletions that a stop interrupted."""
        for name in self._disk.listdir(self.path):
            if name.endswith(DELETED_SUFFIX):
                self._disk.remove_tree(f"{self.path}/{name}")

    def go_offline(self, reason: str) -> None:
        self.is_online = False
        self.reason = reason

    def come_online(self) -> None:
        """The directory works again; what was in flight when it failed was not clean. Raises `StorageError` if it cannot be claimed."""
        self.was_clean = False
        if not self.is_claimed and self._owner is not None:
            if self._lock is None:
                self.lock()
            self.claim(*self._owner)
        self.is_online = True
        self.reason = ""

    def free_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system under it; raises `StorageError`."""
        return self._disk.free_bytes(self.path)

    def can_be_written(self) -> bool:
        """Tries the disk: room, a file written and synced, removed again."""
        probe = f"{self.path}/.probe"
        try:
            if self._disk.free_bytes(self.path)[1] < FREE_BYTES_MIN:
                return False
            checkpoints.write_atomically(self._disk, probe, b"probe")
            self._disk.remove(probe)
        except StorageError:
            return False
        return True

    def plan_checkpoints(self, partitions: Iterable[Partition]) -> Callable[[], StorageError | None]:
        """Takes down recovery points, high watermarks and log starts now; the returned function writes them, in any thread."""
        here = [partition for partition in partitions if partition.log.directory.rpartition("/")[0] == self.path]
        files = {
            checkpoints.RECOVERY_POINT_FILE: {p.topic_partition: p.log.recovery_point for p in here},
            checkpoints.HIGH_WATERMARK_FILE: {p.topic_partition: p.high_watermark for p in here},
            checkpoints.LOG_START_FILE: {p.topic_partition: p.log.log_start_offset for p in here if p.log.log_start_offset > 0},
        }

        def write() -> StorageError | None:
            try:
                for name, offsets in files.items():
                    checkpoints.write_offsets(self._disk, f"{self.path}/{name}", offsets)
            except StorageError as error:
                return error
            return None

        return write

    def close(self, *, is_clean: bool) -> None:
        if is_clean and self.is_online:
            checkpoints.write_clean_shutdown(self._disk, self.path)
        self.release()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_owner(self, broker_id: int, cluster_id: str, random: Random) -> None:
        found = checkpoints.read_meta_properties(self._disk, self.path)
        if found is None:
            directory_id = uuid_to_text(random.token_bytes(16))
            properties = MetaProperties(broker_id=broker_id, cluster_id=cluster_id, directory_id=directory_id)
            checkpoints.write_meta_properties(self._disk, self.path, properties)
            return
        if found.cluster_id != cluster_id:
            raise DirectoryRefused(
                f"{self.path} belongs to cluster {found.cluster_id}, this broker to {cluster_id}; point log.dirs elsewhere", self.path
            )
        if found.broker_id not in (broker_id, -1):
            known = found.broker_id
            raise DirectoryRefused(f"{self.path} belongs to broker {known}, not {broker_id}; set broker.id={known}", self.path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self._disk, f"{self.path}/{name}")
        except StorageError as error:
            log.warning("%s; it is ignored and rebuilt", error)
            return {}
