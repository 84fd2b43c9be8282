"""Roles, fencing, failures and bounds of one replica (I7, I15, I18, I24, I44)."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, StorageError
from ottla.base.types import READ_COMMITTED
from ottla.replication import reads
from ottla.replication.partition import Partition
from ottla.wire.records import iter_batches
from tests.fakes.disk import MemDisk
from tests.replication.records import NOW, OpenLog, append, batch, fetch, mine, refusal, three, values


def test_i18_another_leader_epoch_is_fenced_without_effect(open_log: OpenLog) -> None:
    partition = three(open_log)
    append(partition, batch("a"))
    for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert refusal(lambda e=epoch: fetch(partition, 2, 1, epoch=e)) is code
        assert refusal(lambda e=epoch: partition.list_offset(-1, 0, e)) is code
        assert refusal(lambda e=epoch: partition.end_offset_for_epoch(4, e)) is code
    assert partition.require_leading().followers[2].log_end_offset == -1 and partition.high_watermark == 0


def test_a_follower_refuses_clients_and_names_the_leader(alone: Partition) -> None:
    leader = alone.require_leading()
    append(alone, batch("a"))
    alone.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[2])
    for function in (lambda: append(alone, batch("b")), lambda: alone.read(0, 100), lambda: alone.list_offset(-1, 0)):
        assert refusal(function) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.acknowledgement(0, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert alone.leader_id == 2


def test_a_refusal_names_the_leader_if_there_is_one(alone: Partition) -> None:
    alone.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=[1, 2], isr=[2])
    assert str(alone.state.refusal()).endswith(" is led by broker 2")
    alone.become_follower(leader_id=-1, leader_epoch=2, partition_epoch=2, replicas=[1, 2], isr=[2])
    assert str(alone.state.refusal()).endswith(" has no leader now")


def test_i15_epochs_do_not_go_back(alone: Partition) -> None:
    alone.become_leader(leader_epoch=3, partition_epoch=1, replicas=[1], isr=[1], now_ms=0)
    older: dict[str, Any] = {"leader_epoch": 2, "partition_epoch": 9}
    assert refusal(lambda: alone.become_leader(**older, replicas=[1], isr=[1], now_ms=0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(lambda: alone.become_follower(leader_id=2, **older, replicas=[1, 2], isr=[2])) is ErrorCode.FENCED_LEADER_EPOCH
    assert alone.is_leading and (alone.leader_epoch, alone.partition_epoch) == (3, 1)


def test_i15_a_replica_that_has_stopped_leading_in_an_epoch_does_not_lead_in_it_again(alone: Partition) -> None:
    """A newer state of the same epoch does not make it lead either: its session had expired, or its log was opened again."""
    role: dict[str, Any] = {"leader_epoch": 3, "replicas": [1], "isr": [1]}
    alone.become_leader(**role, partition_epoch=1, now_ms=0)
    alone.become_follower(leader_id=-1, **role, partition_epoch=1)
    assert refusal(lambda: alone.become_leader(**role, partition_epoch=2, now_ms=0)) is ErrorCode.FENCED_LEADER_EPOCH
    assert not alone.is_leading
    alone.become_leader(**{**role, "leader_epoch": 4}, partition_epoch=3, now_ms=0)
    assert alone.is_leading


def test_i9_a_leader_outside_of_its_isr_is_refused(alone: Partition) -> None:
    asked: dict[str, Any] = {"leader_epoch": 4, "partition_epoch": 1, "replicas": [1, 2], "isr": [2]}
    assert refusal(lambda: alone.become_leader(**asked, now_ms=0)) is ErrorCode.INVALID_REQUEST
    assert alone.is_leading and (alone.leader_epoch, alone.isr) == (0, (1,))


def test_i44_a_failed_write_takes_the_partition_offline(alone: Partition, disk: MemDisk) -> None:
    leader = alone.require_leading()
    append(alone, batch("a"))
    called: list[str] = []
    alone.notifier.add_watcher(lambda: called.append(alone.offline_reason))
    disk.fail_next("write", errno.ENOSPC, path_part=".log")
    errors: list[StorageError] = []
    alone.on_storage_error = lambda _partition, error: errors.append(error)
    assert refusal(lambda: append(alone, batch("b"))) is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(errors) == 1
    assert len(called) == 1 and called[0]
    for function in (lambda: append(alone, batch("c")), lambda: alone.read(0, 100)):
        assert refusal(function) is ErrorCode.KAFKA_STORAGE_ERROR
    assert leader.acknowledgement(0, -1) is ErrorCode.KAFKA_STORAGE_ERROR


def test_i44_a_failed_read_takes_the_partition_offline(open_log: OpenLog, disk: MemDisk) -> None:
    log = open_log()
    partition = Partition(log, broker_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=[1], isr=[1], now_ms=0)
    append(partition, batch("a"))
    log.roll()
    append(partition, batch("b"))
    log.close(clean=True)
    disk.fail_next("open", errno.EIO)
    assert refusal(lambda: partition.read(0, 100)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_online


def test_i24_readers_of_committed_data_stop_before_an_open_transaction(alone: Partition) -> None:
    append(alone, batch("plain"))
    append(alone, mine("t1", "t2", sequence=0, is_transactional=True))
    append(alone, batch("later"))
    assert alone.last_stable_offset == 1 and values(alone, isolation=READ_COMMITTED) == ["plain"]
    assert values(alone) == ["plain", "t1", "t2", "later"]
    assert alone.require_leading().write_marker(7, 0, 1, True, NOW) == 4
    assert alone.last_stable_offset == 5
    assert values(alone, isolation=READ_COMMITTED) == ["plain", "t1", "t2", "later"]
    read = alone.read(0, 1 << 20, isolation=READ_COMMITTED)
    assert read.aborted == []


def test_i24_aborted_transactions_are_named_to_the_reader(alone: Partition) -> None:
    append(alone, mine("t", sequence=0, is_transactional=True))
    alone.require_leading().write_marker(7, 0, 1, False, NOW)
    assert alone.read(0, 1 << 20, isolation=READ_COMMITTED).aborted == [(7, 0)]
    assert alone.read(0, 1 << 20).aborted is None


def test_i24_aborted_transactions_of_sealed_segments(alone: Partition) -> None:
    """The transaction begins in one segment, and its marker is in another."""
    append(alone, mine("t1", sequence=0, is_transactional=True))
    alone.log.roll()
    append(alone, mine("t2", sequence=1, is_transactional=True))
    alone.log.roll()
    alone.require_leading().write_marker(7, 0, 1, False, NOW)
    append(alone, batch("x"))
    alone.log.roll()
    append(alone, batch("y"))
    for offset in (0, 1, 2):
        assert alone.read(offset, 1 << 20, isolation=READ_COMMITTED).aborted == [(7, 0)]
    assert alone.read(3, 1 << 20, isolation=READ_COMMITTED).aborted == []
    assert alone.read(4, 1 << 20, isolation=READ_COMMITTED).aborted == []


def abort_many(partition: Partition, count: int) -> None:
    """Writes `count` aborted transactions of different producers, one after another: a record at offset 2n, and the marker at 2n + 1."""
    for producer_id in range(count):
        append(partition, mine("t", sequence=0, is_transactional=True, producer_id=producer_id))
        partition.require_leading().write_marker(producer_id, 0, 1, False, NOW)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_i24_a_small_read_names_no_aborted_transactions_far_behind_it(alone: Partition, is_sealed: bool) -> None:
    """Formerly each small read of a reader far behind named all aborted transactions of the segment, which could be thousands."""
    abort_many(alone, 500)
    if is_sealed:
        alone.log.roll()
        append(alone, batch("x"))
    for number in (0, 100, 450, 499):
        aborted = alone.read(2 * number, 100, isolation=READ_COMMITTED).aborted
        assert aborted is not None and aborted[0] == (number, 2 * number) and len(aborted) < 60
    assert alone.read(0, 1 << 20, isolation=READ_COMMITTED).aborted == [(number, 2 * number) for number in range(500)]


def test_i24_a_read_ends_before_too_many_aborted_transactions(alone: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "ABORTED_MAX", 10)
    abort_many(alone, 50)
    found, named, offset = 0, 0, 0
    while (read := alone.read(offset, 1 << 20, isolation=READ_COMMITTED)).slice is not None:
        assert read.aborted is not None and len(read.aborted) <= 10
        headers = [header for _, header in iter_batches(read.slice.read())]
        offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1
        found, named = found + len(headers), named + len(read.aborted)
    assert (found, named, offset) == (100, 50, 100)


def test_i24_transactions_that_were_open_together_are_all_named(alone: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of these transactions overlap each other, so a shorter read would overlap as many of them."""
    monkeypatch.setattr(reads, "ABORTED_MAX", 10)
    for producer_id in range(20):
        append(alone, mine("t", sequence=0, is_transactional=True, producer_id=producer_id))
    for producer_id in range(20):
        alone.require_leading().write_marker(producer_id, 0, 1, False, NOW)
    assert alone.read(19, 1 << 20, isolation=READ_COMMITTED).aborted == [(number, number) for number in range(20)]


def test_watchers_are_called_at_each_move_until_they_are_removed(alone: Partition) -> None:
    called: list[int] = []

    def watcher() -> None:
        called.append(alone.high_watermark)

    alone.notifier.add_watcher(watcher)
    append(alone, batch("a"))
    alone.require_leading().write_marker(7, 0, 1, True, NOW)
    alone.notifier.remove_watcher(watcher)
    alone.notifier.remove_watcher(watcher)
    append(alone, batch("b"))
    assert called == [1, 2]


def test_a_watcher_may_append_and_calls_do_not_nest(alone: Partition) -> None:
    depths: list[int] = []
    depth = 0

    def watcher() -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if alone.log.log_end_offset < 5:
            append(alone, batch("more"))
        depth -= 1

    alone.notifier.add_watcher(watcher)
    append(alone, batch("a"))
    assert alone.log.log_end_offset == 5 and set(depths) == {1} and len(depths) == 5


def test_a_high_watermark_from_a_checkpoint_is_kept_within_the_log(alone: Partition, open_log: OpenLog) -> None:
    append(alone, batch("a", "b"))
    alone.log.close(clean=True)
    log = open_log(was_clean=True, recovery_point=2)
    assert Partition(log, broker_id=1, high_watermark=9).high_watermark == 2
    log.advance_log_start(1)
    assert Partition(log, broker_id=1).high_watermark == 1
