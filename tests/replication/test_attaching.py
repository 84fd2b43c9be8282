"""Manifests become records of a transaction: completely, once, in order, and only with the bytes that they describe."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.replication.attaching import MANIFEST_CHUNKS_MAX, Attached
from ottla.replication.partition import Partition
from ottla.storage.log import Log
from ottla.storage.staged_chunk import CHUNK_RECORDS_MAX
from ottla.wire.batch_header import SEQUENCE_MASK, check_crc, iter_batches
from ottla.wire.compression import CODEC_LZ4
from ottla.wire.messages.attach_records import StagedChunk
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.replication.records import OpenLog, append, batch, mine, values
from tests.replication.staged import MINE, PRODUCER, THEIRS, Staged, chunk, listed

A, B = chunk(["a", "b"], ["c"]), chunk(["d"], ["e", "f"])
BOTH = listed(0, A), listed(1, B)


@pytest.fixture
def staged(disk: MemDisk, alone: Partition) -> Staged:
    return Staged(disk, alone)


def stage_both(staged: Staged) -> None:
    staged.stage(1, B)
    staged.stage(0, A)


def test_a_manifest_is_appended_in_its_order(staged: Staged) -> None:
    append(staged.partition, mine("x", sequence=0, is_transactional=True))
    stage_both(staged)
    assert staged.attach(*BOTH, sequence=1) == Attached(1, 6)
    assert values(staged.partition) == list("xabcdef")
    assert values(staged.partition, isolation=1) == []
    staged.end()
    assert values(staged.partition, isolation=1) == list("xabcdef")


def test_batches_get_their_producer_and_a_right_crc(staged: Staged) -> None:
    """I4: the appended batches have a right CRC."""
    stage_both(staged)
    staged.attach(*BOTH)
    read = staged.partition.read(0, 1 << 20)
    assert read.slice is not None
    data = read.slice.read()
    found = [(header.producer_id, header.producer_epoch, header.base_sequence) for _, header in iter_batches(data)]
    assert found == [(PRODUCER, 0, sequence) for sequence in (0, 2, 3, 4)]
    assert all(check_crc(data, position, header.size_bytes) for position, header in iter_batches(data))


def test_sequences_go_on_past_the_last_number(staged: Staged) -> None:
    append(staged.partition, mine("x", sequence=SEQUENCE_MASK - 1, is_transactional=True))
    stage_both(staged)
    assert staged.attach(*BOTH, sequence=SEQUENCE_MASK) == Attached(1, 6)
    assert staged.attach(*BOTH, sequence=SEQUENCE_MASK) == Attached(-1, 6)


# Manifests that match nothing


@pytest.mark.parametrize(("field", "value"), [("attempt_id", 2), ("chunk", 5), ("records", 4), ("length", 1), ("crc", 1)])
def test_i47_nothing_is_appended_unless_the_whole_manifest_matches(staged: Staged, field: str, value: int) -> None:
    stage_both(staged)
    wrong = listed(1, B)
    setattr(wrong, field, value)
    assert staged.attach(listed(0, A), wrong) is ErrorCode.UNKNOWN_STAGE
    assert values(staged.partition) == []


def test_i47_bytes_that_were_damaged_on_the_disk_are_not_appended(staged: Staged) -> None:
    staged.stage(0, A)
    (name,) = [name for name in staged.disk.listdir("/data") if "staged" in name]
    staged.disk.open(f"/data/{name}").pwrite(b"\xff", len(A) - 1)
    assert staged.attach(listed(0, A)) is ErrorCode.UNKNOWN_STAGE
    assert values(staged.partition) == []


def test_nothing_was_ever_staged(staged: Staged) -> None:
    assert staged.attach(listed(0, A)) is ErrorCode.UNKNOWN_STAGE


def test_another_principals_token(staged: Staged) -> None:
    staged.stage(0, A, token=THEIRS)
    assert staged.attach(listed(0, A)) is ErrorCode.UNKNOWN_STAGE


def entry(**fields: int) -> StagedChunk:
    return StagedChunk(**{"attempt_id": 1, "chunk": 0, "records": 3, "length": len(A), "crc": 1, **fields})


IMPOSSIBLE: dict[str, tuple[Any, dict[str, Any]]] = {
    "no chunks": ((), {}),
    "a chunk twice": ((listed(0, A), listed(0, A)), {}),
    "no records": ((entry(records=0),), {}),
    "records below zero": ((entry(records=-1), entry(chunk=1, records=4)), {}),
    "no bytes": ((entry(length=0),), {}),
    "a chunk below zero": ((entry(chunk=-1),), {}),
    "more records than sequences": ((entry(records=CHUNK_RECORDS_MAX), entry(chunk=1, records=1)), {}),
    "too many chunks": ([entry()] * (MANIFEST_CHUNKS_MAX + 1), {}),
    "a sequence below zero": ((listed(0, A),), {"sequence": -1}),
    "an epoch below zero": ((listed(0, A),), {"epoch": -1}),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_manifests_that_cannot_be_right(staged: Staged, name: str) -> None:
    stage_both(staged)
    chunks, options = IMPOSSIBLE[name]
    assert staged.attach(*chunks, **options) is ErrorCode.INVALID_REQUEST
    assert values(staged.partition) == []


# Sequences, epochs and transactions, as with Produce


@pytest.mark.parametrize("sequence", [1, 7, SEQUENCE_MASK])
def test_a_gap_is_out_of_order(staged: Staged, sequence: int) -> None:
    """I19."""
    append(staged.partition, mine("x", sequence=0, is_transactional=True))
    stage_both(staged)
    expected = Attached(1, 6) if sequence == 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert staged.attach(*BOTH, sequence=sequence) == expected


def test_the_first_of_a_transaction_of_version_2_is_number_0(staged: Staged) -> None:
    stage_both(staged)
    assert staged.attach(*BOTH, sequence=5, is_v2=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert staged.attach(*BOTH, is_v2=True) == Attached(0, 5)


def test_i21_an_older_epoch_is_fenced(staged: Staged) -> None:
    append(staged.partition, mine("x", sequence=0, epoch=4, is_transactional=True))
    stage_both(staged)
    assert staged.attach(*BOTH, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert values(staged.partition) == ["x"]


def test_a_transaction_that_ended_before_the_first_batch(staged: Staged) -> None:
    """I30: the coordinator's confirmation is no longer valid once a marker was appended."""
    stage_both(staged)
    steps = staged.attaching(*BOTH).steps()
    staged.end(is_commit=False)
    assert list(steps) is not None
    assert staged.outcome is not None and staged.outcome.code is ErrorCode.INVALID_TXN_STATE  # type: ignore[union-attr]
    assert values(staged.partition) == []


def test_a_transaction_that_ends_between_two_batches(staged: Staged) -> None:
    """The appended batches are aborted with the transaction, and the rest of the manifest is not appended, although the epoch is still the
    same."""
    stage_both(staged)
    steps = staged.attaching(*BOTH).steps()
    while values(staged.partition) != ["a", "b"]:
        next(steps)
    staged.end(is_commit=False)
    assert list(steps) == []
    assert staged.outcome is not None and staged.outcome.code is ErrorCode.INVALID_TXN_STATE  # type: ignore[union-attr]
    assert values(staged.partition) == ["a", "b"]
    assert staged.partition.read(0, 1 << 20, isolation=1).aborted == [(PRODUCER, 0)]
    assert not staged.leader.has_open_transaction(PRODUCER, 0)


def test_a_leader_that_is_replaced_between_two_batches(staged: Staged) -> None:
    stage_both(staged)
    steps = staged.attaching(*BOTH).steps()
    while not values(staged.partition):
        next(steps)
    staged.partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[2])
    assert list(steps) == []
    assert staged.outcome is not None and staged.outcome.code is ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[union-attr]


# Retries


def test_i48_a_retry_is_answered_without_the_stage(staged: Staged) -> None:
    stage_both(staged)
    staged.attach(*BOTH)
    staged.space.close()
    assert staged.attach(*BOTH) == Attached(-1, 5)
    assert values(staged.partition) == list("abcdef")


def test_i48_a_new_leader_answers_a_retry_from_its_log(staged: Staged, open_log: OpenLog) -> None:
    """The manifest may have more batches than the five that are remembered for each producer."""
    chunks = [chunk([str(number)]) for number in range(9)]
    for number, data in enumerate(chunks):
        staged.stage(number, data)
    manifest = [listed(number, data) for number, data in enumerate(chunks)]
    staged.attach(*manifest)
    staged.partition.log.close(clean=False)
    restarted = Staged(staged.disk, led(open_log()))
    assert restarted.attach(*manifest) == Attached(-1, 8)
    assert restarted.attach(*manifest, listed(9, A)) is ErrorCode.UNKNOWN_STAGE
    assert values(restarted.partition) == [str(number) for number in range(9)]


def led(log: Log) -> Partition:
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    return partition


@pytest.mark.parametrize("steps_done", range(2, 6))
def test_the_rest_of_a_broken_off_attach_is_appended(staged: Staged, steps_done: int) -> None:
    stage_both(staged)
    steps = staged.attaching(*BOTH).steps()
    for _ in range(steps_done):
        next(steps)
    begun = values(staged.partition)
    outcome = staged.attach(*BOTH)
    assert outcome == (Attached(-1, 5) if begun else Attached(0, 5))
    assert values(staged.partition) == list("abcdef")


def test_the_rest_is_refused_when_its_stage_is_gone(staged: Staged) -> None:
    stage_both(staged)
    staged.attach(listed(0, A))
    staged.space.close()
    assert staged.attach(*BOTH) is ErrorCode.UNKNOWN_STAGE
    assert values(staged.partition) == list("abc")


def test_only_the_rest_must_be_staged(staged: Staged) -> None:
    """The first chunk was attached by a leader that is gone."""
    staged.stage(0, A)
    staged.attach(listed(0, A))
    staged.space.close()
    staged.stage(1, B)
    assert staged.attach(*BOTH) == Attached(-1, 5)
    assert values(staged.partition) == list("abcdef")


def test_a_first_part_that_is_no_part_of_the_manifest(staged: Staged) -> None:
    """One record is in the log, but no batch of the manifest ends there."""
    append(staged.partition, mine("x", sequence=0, is_transactional=True))
    stage_both(staged)
    assert staged.attach(*BOTH) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(staged.partition) == ["x"]


def test_staged_bytes_stay_until_the_transaction_ends(staged: Staged) -> None:
    stage_both(staged)
    staged.attach(*BOTH)
    assert len(staged.space) == 1
    staged.end()
    assert len(staged.space) == 0
    assert staged.attach(*BOTH, token=MINE, epoch=1) is ErrorCode.UNKNOWN_STAGE


# Topics whose settings require a look into records


def test_records_are_not_unpacked_again_when_they_are_attached(open_log: OpenLog, disk: MemDisk) -> None:
    """Decompressing a hostile batch would block the loop for a long time. The batch keeps the client's codec."""
    staged = Staged(disk, led(open_log(log_settings(compression_type="gzip"))))
    data = bytearray(batch("a", is_transactional=True, codec=CODEC_LZ4))
    staged.stage(0, data)
    assert staged.attach(listed(0, data)) == Attached(0, 0)
    read = staged.partition.read(0, 1 << 20)
    assert read.slice is not None
    assert [header.codec for _, header in iter_batches(read.slice.read())] == [CODEC_LZ4]


def test_records_that_were_staged_under_milder_rules_are_refused(staged: Staged) -> None:
    stage_both(staged)
    staged.partition.log.configure(log_settings(is_compacted=True))
    assert staged.attach(*BOTH) is ErrorCode.UNKNOWN_STAGE
    assert values(staged.partition) == []


def test_other_changes_of_a_topics_settings_do_no_harm(staged: Staged) -> None:
    stage_both(staged)
    staged.partition.log.configure(log_settings(retention_ms=1))
    assert staged.attach(*BOTH) == Attached(0, 5)
