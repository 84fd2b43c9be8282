"""Leader epochs against a slow model that asks every offset (I16, KIP-101, KIP-279)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import StorageError
from ottla.storage.epochs import SECTOR_BYTES, LeaderEpochs, read_epochs
from ottla.storage.small_files import LEADER_EPOCH_FILE, lines_text, read_whole
from tests.fakes.disk import MemDisk
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import DIRECTORY, ROOT, LogBuilder, batch_of

runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=6)
"""(step of the epoch, number of offsets written in it)"""


def written(pairs: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """Returns the cache after these appends, and the epoch of every offset."""
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


@given(runs, st.integers(0, 3), st.integers(-1, 30))
def test_a_leader_before_its_first_record_answers_as_after_it(pairs: list[tuple[int, int]], more: int, asked: int) -> None:
    epochs, log = written(pairs)
    leader_epoch = max(epochs.latest, 0) + more
    noted = LeaderEpochs(epochs.entries())
    noted.assign(leader_epoch, len(log))
    assert epochs.end_offset_for(asked, len(log), leader_epoch) == noted.end_offset_for(asked, len(log))


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


def stored(entries: list[tuple[int, int]]) -> tuple[MemDisk, LeaderEpochs, str]:
    disk, epochs = MemDisk(ROOT), LeaderEpochs(entries)
    epochs.write(disk, ROOT, is_durable=True)
    return disk, epochs, f"{ROOT}/{LEADER_EPOCH_FILE}"


@given(runs, runs)
def test_epochs_are_added_to_the_file_in_place(first: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    entries = written(first)[0].entries()
    both = written(first + more)[0].entries()
    disk, epochs, path = stored(entries)
    for epoch, start in both[len(entries) :]:
        epochs.assign(epoch, start)
    file = epochs.append_to_file(disk, ROOT)
    assert file is not None
    file.sync()
    assert not epochs.is_dirty and read_whole(disk, path) == lines_text([f"{a} {b}" for a, b in both]).encode()
    disk.crash()
    found = read_epochs(disk, ROOT)
    assert found is not None and found.entries() == both


def test_the_first_file_is_made_in_place() -> None:
    disk, epochs = MemDisk(ROOT), LeaderEpochs()
    epochs.assign(4, 0)
    disk.write_file(f"{ROOT}/{LEADER_EPOCH_FILE}", b"")
    assert read_epochs(disk, ROOT) is None, "a kill may leave an empty file"
    for _ in range(2):
        assert epochs.append_to_file(disk, ROOT) is not None
        assert disk.read_file(f"{ROOT}/{LEADER_EPOCH_FILE}") == b"0\n1\n4 0\n"
        disk.remove(f"{ROOT}/{LEADER_EPOCH_FILE}")
        epochs = LeaderEpochs()
        epochs.assign(4, 0)


def test_a_file_that_was_cut_changed_by_others_or_is_large_is_replaced() -> None:
    entries = [(epoch, epoch * 1000) for epoch in range(1, 10)]
    disk, epochs, path = stored(entries)
    epochs.truncate_end(9000)
    assert epochs.append_to_file(disk, ROOT) is None, "an entry is gone"
    disk, epochs, path = stored(entries)
    disk.open(path).pwrite(b"0\n8", 0)
    epochs.assign(10, 10_000)
    assert epochs.append_to_file(disk, ROOT) is None, "the file has other entries"
    disk, epochs, path = stored([(epoch, epoch * 10**12) for epoch in range(1, 300)])
    epochs.assign(300, 300 * 10**12)
    assert epochs.append_to_file(disk, ROOT) is None, "more than a page"
    disk, epochs, path = stored([(epoch, epoch * 10**12) for epoch in range(1, 100)])
    epochs.assign(100, 100 * 10**12)
    assert epochs.append_to_file(disk, ROOT) is None, "the count gets a digit, and more than a sector moves"
    disk, epochs, path = stored(entries)
    epochs.distrust_file()
    assert epochs.append_to_file(disk, ROOT) is None


@pytest.mark.parametrize("count", [1, 8, 9, 30, 99, 120])
@pytest.mark.parametrize("added", [1, 2])
def test_no_torn_file_passes_for_a_whole_one(count: int, added: int) -> None:
    """After a power failure each sector of the file has its old or its new content; behind the old end, the old content is zeros. The file
    has its old or its new size."""
    entries = [(epoch, 3 + epoch * epoch) for epoch in range(1, count + added + 1)]
    disk, epochs, path = stored(entries[:count])
    old = read_whole(disk, path) or b""
    for entry in entries[count:]:
        epochs.assign(*entry)
    if epochs.append_to_file(disk, ROOT) is None:
        assert count == 99
        return
    new = read_whole(disk, path) or b""
    sectors = range(0, len(new), SECTOR_BYTES)
    for choice in range(1 << len(sectors)):
        torn = b"".join(
            (new if choice >> number & 1 else old.ljust(len(new), b"\0"))[at : at + SECTOR_BYTES] for number, at in enumerate(sectors)
        )
        for size in (len(old), len(new)):
            file = disk.open(path)
            file.truncate(0)
            file.pwrite(torn[:size], 0)
            try:
                found = read_epochs(disk, ROOT)
            except StorageError:
                continue
            assert found is not None and found.entries() in (entries[:count], entries)
            assert torn[:size] in (old, new)


@given(runs.filter(bool))
def test_no_beginning_of_a_file_passes_for_a_whole_one(first: list[tuple[int, int]]) -> None:
    """Of a replaced file that was not synced, only a part may exist. Formerly "1 2" instead of "1 21" made epoch 1 begin at offset 2."""
    entries = written(first)[0].entries()
    disk, _epochs, path = stored(entries)
    whole = read_whole(disk, path) or b""
    for size in range(1, len(whole)):
        disk.write_file(path, whole[:size])
        with pytest.raises(StorageError):
            read_epochs(disk, ROOT)


def test_a_power_failure_in_a_truncation_leaves_the_epochs_before_it_or_after_it() -> None:
    """The synced file must not be replaced by an unsynced one. If that were lost, an epoch whose batches were all compacted away could not
    be rebuilt from the log."""
    built = LogBuilder()
    for epoch in range(4):
        built.append(batch_of(2), leader_epoch=epoch)
    built.log.flush()
    disk, images = built.disk, list[MemDisk]()
    assert isinstance(disk, MemDisk)
    disk.on_change = lambda _operation, _path: images.extend([disk.image(), disk.image(SeededRandom(len(images)))])
    built.log.truncate_to(4)
    before, after = [(0, 0), (1, 2), (2, 4), (3, 6)], [(0, 0), (1, 2)]
    found = [read_epochs(image, DIRECTORY) for image in images]
    entries = [epochs.entries() for epochs in found if epochs is not None]
    assert len(entries) == len(images) and {*map(tuple, entries)} == {tuple(before), tuple(after)}
    assert entries[-2:] == [after, after]
