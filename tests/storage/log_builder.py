"""Builds logs on a disk in memory for tests: appends batches of any kind, simulates crashes with the caller's checkpoints, and lists the
contents of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.log_config import LogConfig
from ottla.base.ports import Disk, Random
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.wire.batch_header import BatchHeader, iter_batches, read_batch_header
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, Record, encode_batch, encode_control_batch
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings

ROOT = "/data"
PARTITION = TopicPartition("orders", 3)
DIRECTORY = f"{ROOT}/{PARTITION}"
TOPIC_ID = bytes(range(16))


def batch_of(
    count: int = 1,
    *,
    value: bytes = b"v" * 20,
    timestamp: int = 1_000,
    key: bytes | None = b"k",
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Returns a batch of `count` equal records, a millisecond apart."""
    records = [Record(0, timestamp + number, key, value) for number in range(count)]
    return bytearray(
        encode_batch(
            records,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


def marker_of(*, is_commit: bool, producer_id: int, producer_epoch: int = 0, timestamp: int = 1_000) -> bytearray:
    kind = CONTROL_COMMIT if is_commit else CONTROL_ABORT
    return bytearray(
        encode_control_batch(kind, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=0, timestamp=timestamp)
    )


@dataclass
class LogBuilder:
    """Acts as the log's caller: keeps its checkpoints, and opens it again after a stop or a crash."""

    config: LogConfig = field(default_factory=log_settings)
    disk: Disk = field(default_factory=lambda: MemDisk(ROOT))
    now_ms: int = 2_000
    recovery_point: int = 0
    log_start_offset: int = 0

    def __post_init__(self) -> None:
        self.log = self.open(was_clean=False)

    def open(self, *, was_clean: bool) -> Log:
        self.log = Log.open(
            self.disk,
            DIRECTORY,
            PARTITION,
            self.config,
            now_ms=self.now_ms,
            was_clean=was_clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            topic_id=TOPIC_ID,
        )
        return self.log

    def append(self, batch: bytearray, *, leader_epoch: int = 0) -> int:
        header = read_batch_header(batch)
        return self.log.append(memoryview(batch), header, leader_epoch=leader_epoch, now_ms=self.now_ms)

    def append_many(self, number: int, count: int = 1, *, size: int = 20, timestamp: int = 1_000) -> None:
        for index in range(number):
            self.append(batch_of(count, value=b"v" * size, timestamp=timestamp + index * 10))

    def checkpoint(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.log_start_offset = self.log.log_start_offset

    def reopen(self) -> Log:
        self.log.close(clean=True)
        self.checkpoint()
        return self.open(was_clean=True)

    def kill(self) -> Log:
        """Simulates kill -9: everything that was written to the disk or the system's memory remains."""
        self.log.close(clean=False)
        return self.open(was_clean=False)

    def crash(self, random: Random | None = None) -> Log:
        """Simulates a power failure: some or all of the unsynced bytes are lost."""
        assert isinstance(self.disk, MemDisk)
        self.disk.crash(random)
        return self.open(was_clean=False)


def read_all(log: Log, *, bytes_max: int = 1 << 20, end_offset: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """Returns every batch from the log's start to its end (or `end_offset`), read as a consumer reads."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    end = log.log_end_offset if end_offset is None else end_offset
    while offset < end:
        piece = log.read(offset, bytes_max, end_offset=end)
        if piece is None:
            break
        data = piece.read()
        assert len(data) == len(piece)
        for position, header in iter_batches(data):
            found.append((header, data[position : position + header.size_bytes]))
        assert found[-1][0].next_offset > offset
        offset = found[-1][0].next_offset
    return found


def offsets_of(log: Log) -> list[int]:
    """Returns the base offset of every batch."""
    return [header.base_offset for header, _ in read_all(log)]


def names(disk: Disk) -> list[str]:
    return disk.listdir(DIRECTORY)
