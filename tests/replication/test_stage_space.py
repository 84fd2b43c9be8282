"""The quotas of staged records for a broker and for a principal, their expiry, and the stop of the broker."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.replication.partition import Partition
from ottla.replication.stage_space import CHARGE_BYTES_MIN
from tests.fakes.disk import MemDisk
from tests.replication.records import refusal
from tests.replication.staged import MINE, THEIRS, Staged, chunk

SMALL = chunk(["a"])
LARGE = chunk(["x" * 3 * CHARGE_BYTES_MIN])
OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def room(chunks: int) -> int:
    return chunks * CHARGE_BYTES_MIN


@pytest.fixture
def make(disk: MemDisk, alone: Partition) -> type[Staged]:
    return lambda *assignments: Staged(disk, alone, *assignments)  # type: ignore[return-value]


def test_a_small_chunk_counts_as_more_than_it_has(make: type[Staged]) -> None:
    """I46: a small chunk is charged more than its bytes, so that the quota also limits the index in memory."""
    staged = make()
    staged.stage(0, SMALL)
    assert staged.space.charged_bytes == CHARGE_BYTES_MIN and staged.space.staged_bytes == len(SMALL)
    staged.stage(1, LARGE)
    assert staged.space.charged_bytes == staged.space.charged_to(MINE.principal) == CHARGE_BYTES_MIN + len(LARGE)


def test_the_quota_of_a_principal(make: type[Staged]) -> None:
    staged = make(f"ottla.stage.principal.bytes.max={room(2)}")
    staged.stage(0, SMALL)
    staged.stage(1, SMALL)
    assert refusal(lambda: staged.stage(2, SMALL)) is OVER
    staged.stage(1, SMALL)
    staged.stage(0, SMALL, token=THEIRS)
    assert staged.space.refused == 1


def test_the_quota_of_the_broker(make: type[Staged]) -> None:
    staged = make(f"ottla.stage.bytes.max={room(2)}")
    staged.stage(0, SMALL)
    staged.stage(0, SMALL, token=THEIRS)
    assert refusal(lambda: staged.stage(1, SMALL)) is OVER
    staged.partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    staged.stage(1, SMALL)
    assert staged.space.charged_to(THEIRS.principal) == 0


def test_nothing_may_be_staged_with_a_quota_of_zero(make: type[Staged]) -> None:
    staged = make("ottla.stage.bytes.max=0")
    assert refusal(lambda: staged.stage(0, SMALL)) is OVER
    assert staged.disk.listdir("/data") == [str(staged.partition.topic_partition)]


def test_a_token_expires_unless_chunks_are_added(make: type[Staged]) -> None:
    staged = make("ottla.stage.retention.ms=1000")
    staged.stage(0, SMALL)
    staged.timers.advance(600)
    staged.stage(0, SMALL, token=THEIRS)
    staged.timers.advance(399)
    assert len(staged.space) == 2
    staged.timers.advance(1)
    assert len(staged.space) == 1 and staged.space.expired_bytes == len(SMALL) and len(staged.removed) == 1
    staged.stage(1, SMALL, token=THEIRS)
    staged.timers.advance(999)
    assert len(staged.space) == 1
    staged.timers.advance(1)
    assert len(staged.space) == 0 and staged.timers.next_deadline_ms() is None


def test_what_has_expired_leaves_room_at_once(make: type[Staged]) -> None:
    staged = make(f"ottla.stage.bytes.max={room(1)}", "ottla.stage.retention.ms=1000")
    staged.stage(0, SMALL)
    staged.clock.advance(1000)
    staged.stage(1, SMALL)
    assert staged.space.charged_bytes == CHARGE_BYTES_MIN


def test_the_end_of_the_broker_leaves_no_file(make: type[Staged]) -> None:
    staged = make()
    staged.stage(0, SMALL)
    staged.stage(0, SMALL, token=THEIRS)
    staged.space.close()
    assert staged.disk.listdir("/data") == [str(staged.partition.topic_partition)]
    assert staged.timers.next_deadline_ms() is None and len(staged.space) == 0
