"""A partition with staged chunks, and manifests of these chunks."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from ottla.base.broker_ports import Ages
from ottla.base.config import BrokerConfig, load
from ottla.base.errors import ApiError, ErrorCode
from ottla.replication.attaching import Attached, Attaching, Manifest
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.replication.stage_space import StageSpace
from ottla.replication.stages import ChunkToken
from ottla.wire.batch_header import iter_batches
from ottla.wire.messages.attach_records import StagedChunk
from tests.fakes import ManualClock, ManualTimers
from tests.fakes.disk import MemDisk
from tests.replication.records import NOW, batch

MINE, THEIRS = ChunkToken("User:a", b"mine".ljust(16)), ChunkToken("User:b", b"mine".ljust(16))
PRODUCER = 7


def chunk(*batches: Sequence[str]) -> bytearray:
    """Returns a chunk of these batches."""
    return bytearray().join(batch(*values, is_transactional=True) for values in batches)


def listed(number: int, data: bytes | bytearray, attempt: int = 1) -> StagedChunk:
    """Returns the entry of a chunk in a correct manifest."""
    records = sum(header.record_count for _, header in iter_batches(data))
    return StagedChunk(attempt_id=attempt, chunk=number, records=records, length=len(data), crc=crc32c(data))


class Staged:
    """A leader without followers, and its stages. A producer has opened a transaction with a first record."""

    def __init__(self, disk: MemDisk, partition: Partition, *assignments: str) -> None:
        self.disk = disk
        self.partition = partition
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.config: BrokerConfig = load(assignments=assignments)[0]
        self.removed: list[str] = []
        self.space = StageSpace(config=self.config, disk=disk, ages=Ages(self.clock, self.timers), remove_later=self._remove)
        self.outcome: Attached | ApiError | None = None

    def _remove(self, paths: list[str]) -> None:
        self.removed += paths
        for path in paths:
            self.disk.remove(path)

    @property
    def leader(self) -> Leader:
        return self.partition.require_leading()

    def stage(self, number: int, data: bytes | bytearray, attempt: int = 1, token: ChunkToken = MINE) -> None:
        self.space.of(self.leader).stage(token, attempt, number, memoryview(data), now_ms=NOW)

    def attaching(
        self, *chunks: StagedChunk, sequence: int = 0, epoch: int = 0, token: ChunkToken = MINE, is_v2: bool = False
    ) -> Attaching:
        manifest = Manifest(
            token=token, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, chunks=chunks, is_transaction_v2=is_v2
        )
        guard = self.leader.begin_verification(PRODUCER, epoch, sequence)
        return Attaching(self.leader, manifest, guard, wall_ms=lambda: NOW, done=self._done)

    def _done(self, outcome: Attached | ApiError) -> None:
        assert self.outcome is None, "an attach has one outcome"
        self.outcome = outcome

    def attach(
        self, *chunks: StagedChunk, sequence: int = 0, epoch: int = 0, token: ChunkToken = MINE, is_v2: bool = False
    ) -> Attached | ErrorCode:
        """Attaches a manifest until it has ended. Returns the result or the error."""
        self.outcome = None
        for _ in self.attaching(*chunks, sequence=sequence, epoch=epoch, token=token, is_v2=is_v2).steps():
            pass
        outcome = self.outcome
        assert outcome is not None, "an attach that has ended has an outcome"
        return outcome.code if isinstance(outcome, ApiError) else outcome

    def end(self, *, is_commit: bool = True, epoch: int = 0) -> None:
        self.leader.write_marker(PRODUCER, epoch, 0, is_commit, NOW)
