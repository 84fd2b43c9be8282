"""A damaged tail is cut before the first damaged batch, also where the scan notices the damage one batch later."""

from __future__ import annotations

import errno

import pytest

from ottla.base.errors import DiskError
from ottla.storage.damaged_tail import remove_from
from ottla.storage.small_files import read_cut
from ottla.wire.batch_header import read_batch_header
from tests.fakes import MemDisk
from tests.storage.log_builder import batch_of

PATH = "/data/t-0/00000000000000000000.log"


def at(offset: int, count: int = 2) -> bytearray:
    batch = batch_of(count)
    batch[:8] = offset.to_bytes(8, "big")
    return batch


@pytest.mark.parametrize(
    ("offsets", "first", "kept"),
    [
        ([0, 2, 4], 4, 2),
        ([0, 2, 4], 5, 2),
        ([0, 2, 4], 9, 3),
        ([0, 90, 4], 4, 1),  # the second batch has a wrong offset, which only the third one shows
        ([0, 90, 4], 99, 1),
    ],
)
def test_batches_before_the_damage_are_kept(offsets: list[int], first: int, kept: int) -> None:
    disk = MemDisk("/data/t-0")
    batches = [at(offset) for offset in offsets]
    disk.write_file(PATH, b"".join(batches))
    disk.write_file(PATH.replace(".log", ".index"), b"x")
    assert remove_from(disk, "/data/t-0", first) == 0
    assert disk.read_file(PATH) == b"".join(batches[:kept]) and not disk.exists(PATH.replace(".log", ".index"))
    assert read_cut(disk, "/data/t-0") == first


def test_segments_behind_the_offset_are_removed() -> None:
    disk = MemDisk("/data/t-0")
    disk.write_file(PATH, at(0))
    later = f"/data/t-0/{2:020d}.log"
    disk.write_file(later, at(2))
    assert read_batch_header(disk.read_file(later)).base_offset == 2
    assert remove_from(disk, "/data/t-0", 2) == 0
    assert not disk.exists(later) and disk.read_file(PATH) == at(0)


@pytest.mark.parametrize("operation", ["read", "truncate"])
def test_a_disk_that_fails_while_the_place_is_looked_for_loses_no_record_before_it(operation: str) -> None:
    disk = MemDisk("/data/t-0")
    batches = [at(offset) for offset in (0, 2, 4)]
    disk.write_file(PATH, b"".join(batches))
    disk.fail_next(operation, errno.ENODEV, path_part=".log")
    with pytest.raises(DiskError):
        remove_from(disk, "/data/t-0", 4)
    assert disk.read_file(PATH) == b"".join(batches)
    assert remove_from(disk, "/data/t-0", 4) == 0
    assert disk.read_file(PATH) == b"".join(batches[:2])
