"""Leader epochs against a slow model that asks every offset (I16, KIP-101, KIP-279)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.storage.epochs import LeaderEpochs, read_epochs
from tests.fakes.disk import MemDisk
from tests.storage.log_builder import ROOT

runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=6)
"""(step of the epoch, number of offsets written in it)"""


def written(pairs: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """The cache, and the epoch of every offset."""
    epochs, log, epoch = LeaderEpochs(), list[int](), 0
    for step, count in pairs:
        epoch += step
        for _ in range(count):
            epochs.assign(epoch, len(log))
            log.append(epoch)
    return epochs, log


@given(runs, st.integers(0, 20))
def test_end_offset_is_where_the_largest_epoch_not_above_ends(pairs: list[tuple[int, int]], asked: int) -> None:
    epochs, log = written(pairs)
    if asked > max(log, default=-1):
        expected = (-1, -1)
    else:
        below = [epoch for epoch in log if epoch <= asked]
        expected = (max(below), len(below)) if below else (asked, 0)
    assert epochs.end_offset_for(asked, len(log)) == expected


@given(runs, st.integers(0, 30))
def test_epoch_at(pairs: list[tuple[int, int]], offset: int) -> None:
    epochs, log = written(pairs)
    expected = -1 if not log else log[min(offset, len(log) - 1)]
    assert epochs.epoch_at(offset) == expected


@given(runs, st.integers(0, 30))
def test_truncations_forget_what_is_gone_and_nothing_else(pairs: list[tuple[int, int]], offset: int) -> None:
    epochs, log = written(pairs)
    epochs.truncate_end(offset)
    assert epochs.entries() == written(pairs)[0].entries()[: len(set(log[:offset]))]
    epochs, _ = written(pairs)
    epochs.truncate_head(offset)
    assert [epochs.epoch_at(at) for at in range(offset, len(log))] == log[offset:]
    assert all(start >= min(offset, max(len(log) - 1, 0)) or start == epochs.starts[-1] for start in epochs.starts)


def test_a_contradicting_assignment_removes_what_it_contradicts() -> None:
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    epochs.assign(6, 15)
    assert epochs.entries() == [(1, 0), (3, 10), (6, 15)]
    epochs.assign(2, 30)
    assert epochs.entries() == [(1, 0), (2, 30)]
    epochs.assign(2, 5)
    epochs.assign(-1, 3)
    assert epochs.entries() == [(1, 0), (2, 30)]
    epochs.assign(9, 0)
    assert epochs.entries() == [(9, 0)]


def test_an_epoch_without_records_gives_way_to_the_next_at_the_same_offset() -> None:
    epochs = LeaderEpochs([(1, 0)])
    epochs.assign(4, 10)
    epochs.assign(5, 10)
    assert epochs.entries() == [(1, 0), (5, 10)]


def test_the_file_is_kafkas_and_comes_back() -> None:
    disk = MemDisk(ROOT)
    epochs = LeaderEpochs([(0, 0), (4, 17)])
    epochs.write(disk, ROOT, is_durable=True)
    assert disk.read_file(f"{ROOT}/leader-epoch-checkpoint") == b"0\n2\n0 0\n4 17\n"
    found = read_epochs(disk, ROOT)
    assert found is not None and found.entries() == epochs.entries() and found.latest == 4
    disk.crash()
    assert disk.read_file(f"{ROOT}/leader-epoch-checkpoint") == b"0\n2\n0 0\n4 17\n"


@pytest.mark.parametrize("lines", [b"0\n2\n1 0\n1 5\n", b"0\n2\n2 0\n1 5\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n1\n"])
def test_a_file_that_goes_back_is_damaged(lines: bytes) -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/leader-epoch-checkpoint", lines)
    with pytest.raises(StorageError):
        read_epochs(disk, ROOT)


def test_no_file_is_none() -> None:
    assert read_epochs(MemDisk(ROOT), ROOT) is None
