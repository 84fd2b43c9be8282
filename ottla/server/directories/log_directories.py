"""The entries of `log.dirs`: their owner, whether they work, and their checkpoints.

A directory belongs to one broker of one cluster (`meta.properties`) and to one process at a time (`.lock`). A failed read, write or sync
takes it offline: its logs are not used until `can_be_written` succeeds and `come_online` is called. So a full disk needs no restart. Each
checkpoint (recovery points, high watermarks, log starts, clean offsets) is one file for all partitions of the directory. The noted offsets
of a log are used when it is opened. When a log is dropped to be opened again, its last offsets are noted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Protocol

from ottla.base.cluster_metadata import LogDirectoryHistory, Renewal
from ottla.base.errors import DamagedLogError, DirectoryRefused, StorageError
from ottla.base.loop.turns import run_steps
from ottla.base.ports import Disk, Random
from ottla.base.types import TopicPartition
from ottla.base.uuids import uuid_to_text
from ottla.replication.partition import Partition
from ottla.storage import generations, small_files
from ottla.storage.ledger import UNKNOWN, Key, Ledger, Proof
from ottla.storage.log import Log
from ottla.storage.offset_checkpoints import LogOffsets, read_entries, write_entries, write_watermarks
from ottla.storage.small_files import Boot, MetaProperties
from ottla.storage.stage_file import sweep

log = logging.getLogger("ottla.storage")

FREE_BYTES_MIN = 16 << 20
"""Free bytes that a directory must have to become online again, and to receive a moved replica."""

DELETED_SUFFIX = "-delete"
NOTHING_NOTED = (0, 0)


class Lock(Protocol):
    def release(self) -> None: ...


TakeLock = Callable[[str], Lock]
"""Locks a directory for this process. Raises `DirectoryRefused` if another process has locked it."""


class LogDirectoryState:
    """One log directory. Without `take_lock` (a disk without other processes) it is not locked."""

    def __init__(
        self, disk: Disk, path: str, take_lock: TakeLock | None = None, boot_id: str = "", *, is_flush_on_ack: bool = False
    ) -> None:
        """`boot_id` changes with each start of the machine; empty if it is unknown. `is_flush_on_ack`: no record is acknowledged before it
        is synced."""
        self.path = path
        self.directory_id = ""
        """The id in `meta.properties`, which stays the same if the directory is mounted elsewhere; empty until it is claimed."""
        self.generations: tuple[str, ...] = ()
        """Ids that an older copy of the directory lacks (`storage/generations.py`). A single broker has none."""
        self.was_whole = False
        """Whether its logs have certainly lost no acknowledged record: the directory was closed cleanly, or the machine was not restarted
        since its last use, or records were synced before they were acknowledged."""
        self.is_online = True
        self.is_cordoned = False
        """Whether new replicas are placed in other directories, if another directory is online and not cordoned (KIP-1066)."""
        self.reason = ""
        self.was_clean = False
        self.has_failed = False
        """Whether the directory has been offline since the start. Then its unsynced records are treated as lost, because after a failed
        sync the page cache proves nothing (I44)."""
        self.clean_offsets: dict[TopicPartition, int] = {}
        """The first dirty offset of each open log that was compacted."""
        self.copies: dict[TopicPartition, tuple[Partition, Log]] = {}
        """The open copies in this directory of logs that are moved here from other directories."""
        self._closed: dict[TopicPartition, LogOffsets] = {}  # the noted offsets of logs that are not open
        self._removed: dict[Key, int] = {}  # replicas that checkpoints on the disk may still have: the last round before the removal
        self._last_begun = self._last_written = 0  # the numbers of two rounds of checkpoints
        self.is_claimed = False
        """Whether its owner was checked and its checkpoints were read. False for a directory that could not be read at the start, until it
        is online."""
        self.ledger: Ledger
        """Set when the directory is claimed."""
        self.is_proved = False
        """Whether a controller has processed every loss of this directory. Only then the marker of a clean stop is written."""
        self._is_new = False
        self._disk = disk
        self._boot_id = boot_id
        self._is_flush_on_ack = is_flush_on_ack
        self._is_settled = False
        """Whether all records in the directory were synced when the broker claimed it."""
        self._noted_watermarks = NOTHING_NOTED  # number and sum of the last written high watermarks, to skip a write without a change
        self._take_lock = take_lock
        self._lock: Lock | None = None
        self._owner: tuple[int, str, Random] | None = None
        self.before_first_claim: Callable[[], None] = lambda: None
        """Refuses a new directory that becomes online after the start, if it replaces another directory."""

    def lock(self) -> None:
        self._disk.makedirs(self.path)
        if self._take_lock is not None:
            self._lock = self._take_lock(self.path)

    def cluster_id(self) -> str | None:
        """Returns the cluster of the directory, or None if it is new."""
        found = small_files.read_meta_properties(self._disk, self.path)
        return found.cluster_id if found is not None else None

    def belong_to(self, broker_id: int, cluster_id: str, random: Random) -> None:
        """Sets the broker and cluster, which a directory that is offline needs for its claim later."""
        self._owner = (broker_id, cluster_id, random)

    def claim(self, broker_id: int, cluster_id: str, random: Random) -> None:
        """Checks that the directory belongs to this broker, makes a new directory its own, and reads the checkpoints. Raises
        `DirectoryRefused` for a directory of another broker or cluster, and `StorageError`."""
        self._check_owner(broker_id, cluster_id, random)
        self.remove_deleted()
        sweep(self._disk, self.path)
        self.was_clean = small_files.take_clean_shutdown(self._disk, self.path)
        if not self._is_new:
            self.ledger = Ledger(self._disk, self.path, log.warning)
        self._read_proof(small_files.read_boot(self._disk, self.path))
        self._closed = read_entries(self._disk, self.path, log.warning)
        self.is_proved = self.was_whole
        self.is_claimed = True

    def begin_generation(self, random: Random) -> None:
        """Begins a generation of the directory before the broker registers. Raises `StorageError`."""
        self.generations = generations.begin(self._disk, self.path, random)

    def renew_generation(self) -> Renewal | None:
        """Renews the newest generation; called in a thread. Raises `StorageError`."""
        return generations.renew(self._disk, self.path)

    def history(self, stored: Renewal | None, random: Random) -> LogDirectoryHistory:
        """Returns the path and the generations. Begins a new list of generations if the directory is older than `stored`, the last renewal
        in the metadata store, or cannot be read."""
        if stored is not None and self.generations and self.is_online:
            try:
                self.generations = generations.compare(self._disk, self.path, random, stored)
            except StorageError as error:  # the directory proves nothing
                log.error("%s", error)
                self.generations = (uuid_to_text(random.token_bytes(16)),)
        return LogDirectoryHistory(self.path, self.generations)

    def _read_proof(self, before: Boot) -> None:
        """Determines whether the last use of the directory has certainly lost no records, and whether all of its records are synced. After
        a reboot all are, because they were read from the disk."""
        has_run_on = bool(self._boot_id) and before.boot_id == self._boot_id
        has_rebooted = bool(self._boot_id) and before.boot_id not in ("", self._boot_id)
        is_ledger_lost = before.has_ledger and self.ledger.is_lost
        self.was_whole = (self.was_clean or before.is_synced or has_run_on) and not is_ledger_lost
        if not self.was_clean and not has_run_on:
            self.ledger.settle()
        self._is_settled = self.was_clean or before.is_synced or has_rebooted or not self.partition_names()
        if before.is_synced and not self._is_flush_on_ack:
            small_files.write_boot(self._disk, self.path, before._replace(is_synced=False))

    def disown(self) -> None:
        """Removes the owner from a new directory, because the start was refused, for example for a wrong `broker.id`."""
        if self._is_new and self.is_online:
            with suppress(StorageError):
                self._disk.remove(f"{self.path}/{small_files.META_PROPERTIES_FILE}")

    @property
    def is_sync_doubtful(self) -> bool:
        """Whether a sync may have failed: in this process or, if `boot_id` is known, in the last one when nothing proves that it lost no
        records."""
        return self.has_failed or (bool(self._boot_id) and not self.was_whole)

    def note_boot(self) -> None:
        """Notes the boot of the machine. The note proves at the next start that a killed process has lost no records and, if
        acknowledgements wait for the disk, that a power failure has lost none. Called after an earlier loss was processed, because the new
        note replaces the note that shows the loss. Raises `StorageError`."""
        self.is_proved = True
        boot = Boot(self._boot_id, self._is_flush_on_ack and self._is_settled, has_ledger=True)
        if self._boot_id and self.is_claimed and not self.has_failed and small_files.read_boot(self._disk, self.path) != boot:
            small_files.write_boot(self._disk, self.path, boot)
        if self.generations and not self.has_failed:
            generations.note(self._disk, self.path)

    # Noted offsets of logs

    def noted(self, key: TopicPartition, topic_id: bytes) -> LogOffsets:
        """Returns the noted offsets for a log that is about to be opened. Offsets of another topic of the same name are ignored (I41)."""
        found = self._closed.get(key)
        noted = found if found is not None and found.topic_id == topic_id else LogOffsets(topic_id)
        watermark = self.ledger.proof(topic_id, key.partition).high_watermark
        return noted if watermark == UNKNOWN else noted._replace(high_watermark=watermark)

    def proof(self, key: TopicPartition, topic_id: bytes) -> Proof:
        """Returns the ledger's proof for a log that is about to be opened. After a disk failure it covers only synced records."""
        proof = self.ledger.proof(topic_id, key.partition)
        return proof._replace(end=proof.synced or UNKNOWN, start=UNKNOWN) if self.has_failed else proof

    def on_opened(self, key: TopicPartition, noted: LogOffsets) -> None:
        """Drops the noted offsets of an open log, except the clean offset, because the log has them now."""
        self.forget(key)
        if noted.clean_offset > 0:
            self.clean_offsets[key] = noted.clean_offset

    def note(self, partition: Partition) -> None:
        """Notes the offsets of a log that is dropped to be opened again."""
        self._closed[partition.topic_partition] = self._offsets_of(partition)
        self.clean_offsets.pop(partition.topic_partition, None)

    def forget(self, key: TopicPartition) -> None:
        """Drops the notes for the name of a log that is deleted or about to be created."""
        self._closed.pop(key, None)
        self.clean_offsets.pop(key, None)

    def keep_evidence(self, error: StorageError) -> None:
        """Makes the ledger durable if a log is damaged. The log's row is the evidence, and a power failure could bring an older row back,
        with which the log would seem whole."""
        if isinstance(error, DamagedLogError):
            with suppress(StorageError):
                self.ledger.sync()

    def on_removed(self, topic_id: bytes, partition: int) -> None:
        """Frees the replica's row. Until the next round of checkpoints the files still have the offsets of its log."""
        self.ledger.free(topic_id, partition)
        self._removed[topic_id, partition] = self._last_begun

    def has_stale_offsets(self, topic_id: bytes, partition: int) -> bool:
        """Whether a start after a power failure may find the offsets of an earlier log of this replica, which was removed."""
        return self._removed.get((topic_id, partition), -1) >= self._last_written

    def _offsets_of(self, partition: Partition) -> LogOffsets:
        key, found = partition.topic_partition, partition.log
        clean_offset = self.clean_offsets.get(key, 0)
        return LogOffsets(partition.topic_id, found.recovery_point, partition.high_watermark, found.log_start_offset, clean_offset)

    def partition_names(self) -> list[str]:
        return [
            name
            for name in self._disk.listdir(self.path)
            if "-" in name and not name.startswith(".") and self._disk.exists(f"{self.path}/{name}/{small_files.PARTITION_METADATA_FILE}")
        ]

    def remove_deleted(self) -> None:
        """Completes deletions that a stop has interrupted."""
        for name in self._disk.listdir(self.path):
            if name.endswith(DELETED_SUFFIX):
                self._disk.remove_tree(f"{self.path}/{name}")

    def go_offline(self, reason: str) -> None:
        if not self.has_failed and self.is_claimed:
            with suppress(StorageError):
                small_files.remove_boot(self._disk, self.path)  # after a failed sync the page cache proves nothing
        self.is_online = False
        self.has_failed = True
        self.reason = reason

    def come_online(self) -> None:
        """Takes the directory online again. Its logs are treated as not cleanly closed. Raises `StorageError` if it cannot be claimed."""
        self.was_clean = False
        if not self.is_claimed and self._owner is not None:
            if self._lock is None:
                self.lock()
            if self.cluster_id() is None:
                self.before_first_claim()
            self.claim(*self._owner)
            self.is_proved = True  # the broker has registered with a directory that failed
        sweep(self._disk, self.path)
        self.is_online = True
        self.reason = ""

    def free_bytes(self) -> tuple[int, int]:
        """Returns (total, usable) bytes of its file system. Raises `StorageError`."""
        return self._disk.free_bytes(self.path)

    def can_be_written(self) -> bool:
        """Whether the disk works: checks the free bytes, and writes, syncs and removes a file."""
        probe = f"{self.path}/.probe"
        try:
            if self._disk.free_bytes(self.path)[1] < FREE_BYTES_MIN:
                return False
            small_files.write_atomically(self._disk, probe, b"probe")
            self._disk.remove(probe)
        except StorageError:
            return False
        return True

    def plan_checkpoints(self, partitions: Iterable[Partition]) -> Callable[[], StorageError | None]:
        """Collects the present checkpoints. Returns a function that writes them and syncs the ledger, in any thread, and returns the error
        of a failure. Only one round may run at a time."""
        return run_steps(self.plan_in_steps([partitions]))

    def plan_in_steps(self, pieces: Iterable[Iterable[Partition]]) -> Generator[None, None, Callable[[], StorageError | None]]:
        """Like `plan_checkpoints`, in steps of some partitions. For a partition that changes meanwhile, old or new offsets are written."""
        self._removed = {key: number for key, number in self._removed.items() if number >= self._last_written}
        self._last_begun = begun = self._last_begun + 1
        found: dict[TopicPartition, LogOffsets] = {}
        for piece in pieces:
            here = [partition for partition in piece if partition.log.directory.rpartition("/")[0] == self.path]
            found.update((partition.topic_partition, self._offsets_of(partition)) for partition in here)
            yield
        entries = self._closed | found
        for key, (partition, copy) in self.copies.items():
            watermark = min(partition.high_watermark, copy.log_end_offset)
            entries[key] = LogOffsets(partition.topic_id, copy.recovery_point, watermark, copy.log_start_offset)

        def write() -> StorageError | None:
            try:
                write_entries(self._disk, self.path, entries)
                self.ledger.sync()
            except StorageError as error:
                return error
            self._last_written = begun
            return None

        return write

    def plan_watermarks(self, pieces: Iterable[Iterable[Partition]]) -> Generator[None, None, Callable[[], StorageError | None]]:
        """Like `plan_in_steps`, for only the high watermarks. Nothing is written if their number and sum have not changed."""
        found: dict[TopicPartition, int] = {}
        for piece in pieces:
            here = [partition for partition in piece if partition.log.directory.rpartition("/")[0] == self.path]
            found.update((partition.topic_partition, partition.high_watermark) for partition in here)
            yield
        before, self._noted_watermarks = self._noted_watermarks, (len(found), sum(found.values()))
        is_changed = before != self._noted_watermarks
        watermarks = {key: noted.high_watermark for key, noted in self._closed.items()} | found

        def write() -> StorageError | None:
            try:
                if is_changed:
                    write_watermarks(self._disk, self.path, watermarks)
            except StorageError as error:
                self._noted_watermarks = NOTHING_NOTED
                return error
            return None

        return write

    def close(self, *, is_clean: bool) -> None:
        """Writes the marker of a clean stop if `is_clean`, and releases the directory. Without `is_proved` no marker is written: the
        directory has lost records, no controller knows it yet, and the marker would hide the loss."""
        if is_clean and self.is_online and self.is_proved:
            self.ledger.sync()
            small_files.write_clean_shutdown(self._disk, self.path)
        self.release()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_owner(self, broker_id: int, cluster_id: str, random: Random) -> None:
        found = small_files.read_meta_properties(self._disk, self.path)
        if found is None:
            directory_id = uuid_to_text(random.token_bytes(16))
            self.ledger = Ledger(self._disk, self.path, log.warning, is_new=True)  # first: without a ledger it proves nothing
            properties = MetaProperties(broker_id=broker_id, cluster_id=cluster_id, directory_id=directory_id)
            small_files.write_meta_properties(self._disk, self.path, properties)
            self.directory_id = directory_id
            self._is_new = True
            return
        self.directory_id = found.directory_id
        if found.cluster_id != cluster_id:
            raise DirectoryRefused(
                f"{self.path} belongs to cluster {found.cluster_id}, this broker to {cluster_id}; point log.dirs elsewhere", self.path
            )
        if found.broker_id not in (broker_id, -1):
            known = found.broker_id
            raise DirectoryRefused(f"{self.path} belongs to broker {known}, not {broker_id}; set broker.id={known}", self.path)
        if not found.directory_id:
            self.directory_id = found.directory_id = uuid_to_text(random.token_bytes(16))
            small_files.write_meta_properties(self._disk, self.path, found)
