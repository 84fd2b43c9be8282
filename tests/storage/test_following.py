"""Batches from a leader: all are checked before the first is written (I1, I4, I16)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.storage.following import judge_followed
from tests.storage.log_builder import PARTITION, LogBuilder, batch_of, offsets_of


def sent(*batches: tuple[int, int]) -> bytearray:
    """Returns batches of two records at (base offset, leader epoch)."""
    return bytearray(b"".join(bytes(batch_of(2, base_offset=base, leader_epoch=epoch)) for base, epoch in batches))


def test_gaps_and_new_epochs_are_legal() -> None:
    found = judge_followed(PARTITION, memoryview(sent((5, 1), (9, 1), (11, 4))), next_offset=5, epoch=0)
    assert [header.base_offset for _, header in found] == [5, 9, 11]


def test_a_batch_of_a_later_epoch_than_the_leaders_is_damaged() -> None:
    """The CRC does not cover the epoch. With such a batch the follower would claim, in all later fetches, to have records of an epoch that
    no leader had."""
    with pytest.raises(ApiError, match="offset 9 of epoch 5, which is newer than its own epoch 4") as refused:
        judge_followed(PARTITION, memoryview(sent((5, 4), (9, 5))), next_offset=5, epoch=1, epoch_max=4)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_cut_off_batch_is_left_for_the_next_fetch() -> None:
    data = sent((5, 1), (7, 1))
    found = judge_followed(PARTITION, memoryview(data)[:-1], next_offset=5, epoch=0)
    assert [header.base_offset for _, header in found] == [5]


@pytest.mark.parametrize("batches", [((4, 1),), ((5, 1), (6, 1)), ((7, 1), (5, 1)), ((5, 0),), ((5, 3), (7, 2))])
def test_offsets_and_epochs_never_go_back(batches: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ApiError) as caught:
        judge_followed(PARTITION, memoryview(sent(*batches)), next_offset=5, epoch=1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("position", [16, 17, 30, 60, 70])
def test_one_damaged_batch_refuses_all_of_them(position: int) -> None:
    """I4: no batch of the answer is appended."""
    built = LogBuilder()
    data = sent((0, 0), (2, 0), (4, 0))
    data[len(data) // 3 * 2 + position] ^= 0x55
    with pytest.raises(ApiError) as caught:
        built.log.append_as_follower(memoryview(data))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert offsets_of(built.log) == [] and built.log.log_end_offset == 0


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: data[:70] + b"!" + data[71:], lambda data: data[:61]])
def test_a_log_that_starts_within_a_batch_keeps_its_start_when_that_batch_is_refused(spoil: Callable[[bytearray], bytearray]) -> None:
    """The batch is incomplete, damaged, or only a header. The log is not restarted before a complete and valid batch has arrived."""
    built = LogBuilder()
    built.log.truncate_fully_and_start_at(3)
    data = spoil(bytearray(batch_of(5, base_offset=0, leader_epoch=1)))
    with suppress(ApiError):
        built.log.append_as_follower(memoryview(data))
    assert (built.log.log_start_offset, built.log.log_end_offset) == (3, 3)
    assert [name for name in built.disk.listdir(built.log.directory) if name.endswith(".log")] == ["00000000000000000003.log"]
    built.log.append_as_follower(memoryview(bytearray(batch_of(5, base_offset=0, leader_epoch=1))))
    assert (built.log.log_start_offset, built.log.log_end_offset) == (3, 5)


def test_nothing_sent_is_nothing_appended() -> None:
    built = LogBuilder()
    built.log.append_as_follower(memoryview(bytearray()))
    built.log.append_as_follower(memoryview(sent((0, 0)))[:50])
    assert built.log.log_end_offset == 0
