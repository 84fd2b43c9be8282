"""Slices of files: they return the bytes of their range, and keep their file open while they exist."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ottla.adapters.disk import OsDisk
from ottla.storage.file_slice import DirectorySync, FileSlice, PathSync, SharedFile
from tests.fakes.disk import MemDisk
from tests.storage.log_builder import ROOT


def test_reads_its_part_whole_or_in_pieces() -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/f", b"0123456789")
    piece = FileSlice(SharedFile(disk.open(f"{ROOT}/f")), 2, 5)
    assert (len(piece), piece.read(), piece.fileno()) == (5, b"23456", -1)
    assert [piece.read_piece(start, 2) for start in (0, 2, 4)] == [b"23", b"45", b"6"]


def test_the_file_closes_with_its_last_holder(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    shared = SharedFile(OsDisk().open(str(path)))
    file = shared.file
    first, second = FileSlice(shared, 0, 3), FileSlice(shared, 3, 3)
    del shared
    path.unlink()
    assert first.read() == b"abc"
    del first
    assert second.fileno() >= 0 and second.read() == b"def"
    del second
    gc.collect()
    assert file.fileno() == -1


def test_syncs_by_name_make_content_and_name_durable() -> None:
    disk = MemDisk(ROOT)
    disk.open(f"{ROOT}/f", create=True).pwrite(b"x", 0)
    PathSync(disk, f"{ROOT}/f").sync()
    assert f"{ROOT}/f" not in disk.image().all_files()
    DirectorySync(disk, ROOT).sync()
    assert disk.image().all_files() == {f"{ROOT}/f": b"x"}


@pytest.mark.parametrize("kind", [PathSync, DirectorySync])
def test_what_is_gone_needs_no_sync(kind: type[PathSync] | type[DirectorySync]) -> None:
    disk = MemDisk(ROOT)
    kind(disk, f"{ROOT}/gone").sync()
    assert "sync" not in disk.counts and "sync_directory" not in disk.counts
