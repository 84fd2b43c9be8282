"""Staged chunks of a partition: which chunk is a repetition, which is a different one, and when all are dropped."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.replication.attaching import Attached
from ottla.replication.partition import Partition
from ottla.replication.stages import PartitionStages
from tests.fakes.disk import MemDisk
from tests.replication.records import refusal
from tests.replication.staged import MINE, PRODUCER, THEIRS, Staged, chunk, listed

A, B = chunk(["a", "b"]), chunk(["c"], ["d"])


@pytest.fixture
def staged(disk: MemDisk, alone: Partition) -> Staged:
    return Staged(disk, alone)


def stages_of(staged: Staged) -> PartitionStages:
    assert staged.leader.stages is not None
    return staged.leader.stages


def test_chunks_come_in_any_order_and_are_read_as_they_were_staged(staged: Staged) -> None:
    staged.stage(1, B)
    staged.stage(0, A)
    found = stages_of(staged).find(MINE, [listed(0, A), listed(1, B)])
    assert [bytes(chunk.read(bytearray(len(A) + len(B)))) for chunk in found] == [A, B]
    assert [(chunk.chunk.position, chunk.chunk.records) for chunk in found] == [(len(B), 2), (0, 2)]


def test_the_same_chunk_again_changes_nothing(staged: Staged) -> None:
    staged.stage(0, A)
    before = staged.space.charged_bytes
    staged.stage(0, A)
    assert staged.space.charged_bytes == before and len(stages_of(staged)) == 1


def test_other_bytes_under_a_known_chunk_are_refused(staged: Staged) -> None:
    staged.stage(0, A)
    for other in (B, chunk(["a", "c"])):
        assert refusal(lambda other=other: staged.stage(0, other)) is ErrorCode.INVALID_RECORD  # type: ignore[misc]
    assert stages_of(staged).find(MINE, [listed(0, A)])[0].read(bytearray(len(A))) == A
    staged.stage(0, B, attempt=2)


def test_a_number_below_zero_is_refused(staged: Staged) -> None:
    assert refusal(lambda: staged.stage(-1, A)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("field", "value"), [("attempt_id", 2), ("chunk", 1), ("records", 1), ("length", 1), ("crc", 1)])
def test_a_manifest_must_name_what_is_staged(staged: Staged, field: str, value: int) -> None:
    staged.stage(0, A)
    staged.stage(7, B)
    wrong = listed(0, A)
    setattr(wrong, field, value)
    stages = stages_of(staged)
    assert refusal(lambda: stages.find(MINE, [listed(7, B), wrong])) is ErrorCode.UNKNOWN_STAGE
    assert len(stages.find(MINE, [listed(7, B), listed(0, A)])) == 2


def test_a_token_is_its_principals_own(staged: Staged) -> None:
    staged.stage(0, A)
    assert refusal(lambda: stages_of(staged).find(THEIRS, [listed(0, A)])) is ErrorCode.UNKNOWN_STAGE
    staged.stage(0, B, token=THEIRS)
    assert stages_of(staged).find(MINE, [listed(0, A)])[0].read(bytearray(len(A))) == A


def test_names_of_files_say_nothing_of_the_token(staged: Staged) -> None:
    staged.stage(0, A)
    assert [name for name in staged.disk.listdir("/data") if "staged" in name] == ["000000000001.ottla-staged"]


def test_damaged_bytes_are_not_a_chunk(staged: Staged) -> None:
    staged.stage(0, A)
    (found,) = stages_of(staged).find(MINE, [listed(0, A)])
    staged.disk.open(found.stage.file.path).pwrite(b"\xff", len(A) - 1)
    assert refusal(lambda: found.read(bytearray(len(A)))) is ErrorCode.UNKNOWN_STAGE
    staged.disk.open(found.stage.file.path).truncate(3)
    assert refusal(lambda: found.read(bytearray(len(A)))) is ErrorCode.UNKNOWN_STAGE
    staged.disk.remove(found.stage.file.path)
    assert refusal(lambda: found.read(bytearray(len(A)))) is ErrorCode.UNKNOWN_STAGE


def test_a_disk_that_cannot_write_refuses_the_chunk_only(staged: Staged) -> None:
    """The directory stays online, because staged chunks are not in the log yet."""
    staged.disk.fail_next("write")
    assert refusal(lambda: staged.stage(0, A)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert staged.partition.is_online and staged.space.charged_bytes == 0
    staged.stage(0, A)


def test_after_an_abort_a_manifest_may_be_attached_again(staged: Staged) -> None:
    """The driver starts a transaction in a new epoch with the same chunks."""
    staged.stage(0, A)
    staged.attach(listed(0, A))
    staged.end(is_commit=False, epoch=1)
    assert staged.attach(listed(0, A), epoch=1) == Attached(3, 4)
    staged.end(epoch=2)
    assert len(staged.space) == 0


def test_the_output_of_an_aborted_transaction_outlives_a_commit_without_it(staged: Staged) -> None:
    staged.stage(0, A)
    staged.attach(listed(0, A))
    staged.end(is_commit=False, epoch=1)
    staged.end(epoch=2)
    assert len(staged.space) == 1
    assert staged.attach(listed(0, A), epoch=2) == Attached(4, 5)


def test_all_of_a_token_goes_with_the_commit(staged: Staged) -> None:
    for attempt in (1, 2):
        staged.stage(0, A, attempt=attempt)
    staged.stage(0, B, token=THEIRS)
    stages_of(staged).use(MINE, PRODUCER)
    staged.leader.write_marker(PRODUCER + 1, 0, 0, True, 0)
    assert len(staged.space) == 3
    staged.end()
    assert len(staged.space) == 1 and len(stages_of(staged)) == 1
    assert len(staged.removed) == 2 and not any(map(staged.disk.exists, staged.removed))
    assert refusal(lambda: stages_of(staged).find(MINE, [listed(0, A)])) is ErrorCode.UNKNOWN_STAGE


def test_everything_goes_with_the_term(staged: Staged) -> None:
    staged.stage(0, A)
    staged.stage(0, A, token=THEIRS)
    staged.partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    assert len(staged.space) == 0 and staged.space.charged_bytes == 0 and len(staged.removed) == 2
    assert staged.leader.stages is None
    staged.stage(0, A)
    staged.partition.go_offline("test")
    assert len(staged.space) == 0
