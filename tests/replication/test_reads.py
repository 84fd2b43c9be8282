"""Reads: bounds, special timestamps, diverging histories (I18, I24, KIP-207, KIP-595)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import READ_COMMITTED, READ_UNCOMMITTED
from ottla.replication.partition import Partition
from ottla.replication.progress import FollowerFetch
from ottla.replication.reads import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    PartitionRead,
)
from ottla.storage.log import Log
from ottla.wire.records import Record, encode_batch
from tests.fakes.log_settings import log_settings

OpenLog = Callable[..., Log]
NOTHING = (-1, -1, -1)


def write(partition: Partition, *timestamps: int, in_transaction: int | None = None) -> None:
    records = [Record(0, timestamp, None, b"x") for timestamp in timestamps]
    if in_transaction is None:
        batch = encode_batch(records)
    else:
        batch = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=in_transaction, is_transactional=True)
    partition.require_leading().append(batch, acks=1, now_ms=1_000)


def refusal(function: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        function()
    return caught.value.code


def two(log: Log, *, epoch: int = 0) -> Partition:
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=[1, 2], isr=[1, 2], now_ms=0)
    return partition


def fetch(partition: Partition, offset: int, last_fetched_epoch: int = -1) -> PartitionRead:
    """Executes a fetch of broker 2, which follows."""
    return partition.read_as_follower(FollowerFetch(2, 1, offset, -1, 0), 1 << 20, last_fetched_epoch=last_fetched_epoch)


def test_the_special_timestamps(alone: Partition) -> None:
    write(alone, 10, 40, 20)
    write(alone, 30)
    assert alone.list_offset(EARLIEST, READ_UNCOMMITTED) == (-1, 0, 0)
    assert alone.list_offset(EARLIEST_LOCAL, READ_UNCOMMITTED) == (-1, 0, 0)
    assert alone.list_offset(LATEST, READ_UNCOMMITTED) == (-1, 4, 0)
    assert alone.list_offset(MAX_TIMESTAMP, READ_UNCOMMITTED) == (40, 1, 0)
    assert alone.list_offset(LATEST_TIERED, READ_UNCOMMITTED) == NOTHING
    assert alone.list_offset(EARLIEST_PENDING_UPLOAD, READ_UNCOMMITTED) == NOTHING
    assert refusal(lambda: alone.list_offset(-7, READ_UNCOMMITTED)) is ErrorCode.UNSUPPORTED_VERSION


def test_the_first_record_at_or_after_a_time(alone: Partition) -> None:
    write(alone, 10, 40, 20)
    assert alone.list_offset(11, READ_UNCOMMITTED) == (40, 1, 0)
    assert alone.list_offset(10, READ_UNCOMMITTED) == (10, 0, 0)
    assert alone.list_offset(41, READ_UNCOMMITTED) == NOTHING


def test_an_empty_log_has_bounds_and_nothing_else(alone: Partition) -> None:
    assert alone.list_offset(LATEST, READ_UNCOMMITTED) == (-1, 0, 0)
    assert alone.list_offset(EARLIEST, READ_UNCOMMITTED)[:2] == (-1, 0)
    assert alone.list_offset(MAX_TIMESTAMP, READ_UNCOMMITTED) == NOTHING
    assert alone.list_offset(0, READ_UNCOMMITTED) == NOTHING


def test_i24_look_ups_of_committed_data_end_at_the_last_stable_offset(alone: Partition) -> None:
    write(alone, 10)
    write(alone, 20, in_transaction=0)
    assert alone.list_offset(LATEST, READ_COMMITTED) == (-1, 1, 0)
    assert alone.list_offset(LATEST, READ_UNCOMMITTED) == (-1, 2, 0)
    for timestamp in (20, MAX_TIMESTAMP):
        assert alone.list_offset(timestamp, READ_COMMITTED) == NOTHING
        assert alone.list_offset(timestamp, READ_UNCOMMITTED) == (20, 1, 0)


def test_kip_207_a_new_leader_answers_no_latest_offset_that_might_go_back(open_log: OpenLog) -> None:
    log = open_log()
    partition = two(log)
    write(partition, 10, 20)
    fetch(partition, 2)
    assert partition.high_watermark == 2
    write(partition, 30)
    restarted = Partition(log, broker_id=1, high_watermark=2)
    restarted.become_leader(leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[1, 2], now_ms=0)
    assert refusal(lambda: restarted.list_offset(LATEST, READ_UNCOMMITTED)) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert refusal(lambda: restarted.list_offset(30, READ_UNCOMMITTED)) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert restarted.list_offset(20, READ_UNCOMMITTED) == (20, 1, 0)
    fetch(restarted, 3)
    assert restarted.list_offset(LATEST, READ_UNCOMMITTED) == (-1, 3, 1)


def test_an_offset_outside_of_the_log_differs_from_one_not_visible_yet(open_log: OpenLog) -> None:
    partition = two(open_log())
    write(partition, 10, 20)
    read = partition.read(1, 100)
    assert read.slice is None and (read.high_watermark, read.last_stable_offset, read.log_start_offset) == (0, 0, 0)
    assert refusal(lambda: partition.read(3, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(lambda: partition.read(-1, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    fetch(partition, 2)
    partition.require_leading().delete_records(1)
    assert refusal(lambda: partition.read(0, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_reads_to_the_end_of_the_log(open_log: OpenLog) -> None:
    partition = two(open_log())
    write(partition, 10)
    read = fetch(partition, 0)
    assert read.slice is not None and read.high_watermark == 0


def test_kip_595_a_reader_is_answered_where_its_history_diverges(open_log: OpenLog) -> None:
    log = open_log(log_settings())
    partition = two(log, epoch=2)
    write(partition, 10, 20)
    partition.become_leader(leader_epoch=5, partition_epoch=5, replicas=[1, 2], isr=[1, 2], now_ms=0)
    write(partition, 30)
    read = fetch(partition, 3, 2)
    assert read.diverging_epoch == (2, 2) and read.slice is None
    assert fetch(partition, 2, 4).diverging_epoch == (2, 2)
    assert partition.require_leading().followers[2].log_end_offset == -1, "a fetch that parts is no progress"
    assert fetch(partition, 2, 2).diverging_epoch is None
    assert partition.end_offset_for_epoch(2) == (2, 2) and partition.end_offset_for_epoch(5) == (5, 3)
    assert refusal(lambda: partition.read(3, 100, last_fetched_epoch=9)) is ErrorCode.OFFSET_OUT_OF_RANGE
