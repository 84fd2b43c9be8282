"""The disk in memory has more than a real one: it fails on demand, and a crash keeps only contents that are certain."""

from __future__ import annotations

import errno

import pytest

from ottla.base.errors import StorageError
from ottla.base.ports import Disk, File
from tests.fakes import MemDisk, SeededRandom


def _written(disk: MemDisk, path: str, data: bytes) -> File:
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    return file


def test_a_crash_keeps_only_what_was_synced() -> None:
    disk = MemDisk("/data")
    file = _written(disk, "/data/a", b"certain")
    file.sync()
    file.pwrite(b" and not", 7)
    disk.sync_directory("/data")
    _written(disk, "/data/nameless", b"x").sync()
    disk.crash()
    assert disk.all_files() == {"/data/a": b"certain"}
    with pytest.raises(AssertionError, match="before the crash"):
        file.pread(1, 0)
    file.close()


def test_names_are_certain_only_after_their_directory_was_synced() -> None:
    disk = MemDisk("/data")
    disk.write_file("/data/a", b"a")
    disk.rename("/data/a", "/data/b")
    assert disk.image().all_files() == {"/data/a": b"a"}
    disk.sync_directory("/data")
    assert disk.image().all_files() == {"/data/b": b"a"}
    disk.remove("/data/b")
    assert disk.image().all_files() == {"/data/b": b"a"}
    disk.makedirs("/data/t-0")
    assert disk.image().listdir("/data") == ["b"]
    disk.sync_directory("/data")
    assert disk.image().listdir("/data") == ["t-0"]


def test_a_random_crash_keeps_a_legal_part_of_the_rest() -> None:
    seen = set()
    for seed in range(60):
        disk = MemDisk("/data")
        file = _written(disk, "/data/a", b"AAAA")
        disk.sync_directory("/data")
        file.sync()
        file.pwrite(b"bbbb", 4)
        disk.crash(SeededRandom(seed))
        data = disk.read_file("/data/a")
        assert b"AAAAbbbb".startswith(data) and len(data) >= 4
        seen.add(data)
    assert seen == {b"AAAA", b"AAAAb", b"AAAAbb", b"AAAAbbb", b"AAAAbbbb"}


def test_a_random_crash_keeps_or_loses_each_change_of_names_that_was_not_synced() -> None:
    """A random crash keeps or loses each unsynced change of names, in any order. But a file never has two names, and no file appears that
    never existed.
    """
    seen = set()
    for seed in range(200):
        disk = MemDisk("/data")
        disk.write_file("/data/a", b"a")
        disk.write_file("/data/c", b"c")
        disk.rename("/data/a", "/data/b")
        disk.open("/data/n", create=True).close()
        disk.remove("/data/c")
        disk.rename("/data/b", "/data/d")
        seen.add(" ".join(disk.image(SeededRandom(seed)).listdir("/data")))
        disk.sync_directory("/data")
        assert disk.image(SeededRandom(seed)).listdir("/data") == ["d", "n"]
    assert seen == {" ".join(sorted(f"{moved}{others}")) for moved in "abd" for others in ("", "c", "n", "cn")}


def test_an_image_leaves_the_disk_alone() -> None:
    disk = MemDisk("/data")
    images: list[MemDisk] = []
    disk.on_change = lambda operation, path: images.append(disk.image())
    file = _written(disk, "/data/a", b"abc")
    disk.sync_directory("/data")
    file.sync()
    assert [image.all_files() for image in images] == [{}, {}, {"/data/a": b""}, {"/data/a": b"abc"}]
    assert disk.counts == {"open": 1, "write": 1, "sync_directory": 1, "sync": 1}
    assert file.pread(3, 0) == b"abc"


def test_the_next_write_fails_and_leaves_a_torn_piece() -> None:
    disk = MemDisk("/data")
    file = disk.open("/data/a", create=True)
    disk.fail_next("write", errno.EIO, after=1, written_bytes=2)
    file.pwrite(b"good", 0)
    with pytest.raises(StorageError, match="cannot write /data/a: Input/output error"):
        file.pwrite(b"torn", 4)
    file.pwrite(b"!", 6)
    assert disk.read_file("/data/a") == b"goodto!"


def test_faults_choose_their_file_and_last_until_healed() -> None:
    disk = MemDisk("/data")
    disk.fail_next("open", errno.EIO, path_part="bad", count=None)
    disk.open("/data/fine", create=True)
    for _ in range(3):
        with pytest.raises(StorageError):
            disk.open("/data/bad", create=True)
    disk.heal()
    disk.open("/data/bad", create=True)


def test_a_failed_sync_loses_its_writes_for_good() -> None:
    disk = MemDisk("/data")
    file = _written(disk, "/data/a", b"gone")
    disk.sync_directory("/data")
    disk.fail_next("sync")
    for _ in range(2):
        with pytest.raises(StorageError):
            file.sync()
    disk.open("/data/a").sync()
    assert disk.read_file("/data/a") == b"gone"
    assert disk.durable_file("/data/a") == b""


def test_a_full_disk_takes_what_fits_and_recovers_with_space() -> None:
    disk = MemDisk("/data", capacity_bytes=10)
    file = _written(disk, "/data/a", b"12345678")
    with pytest.raises(StorageError, match="No space left on device"):
        file.pwrite(b"abcd", 8)
    assert disk.read_file("/data/a") == b"12345678ab"
    file.pwrite(b"x", 0)
    assert disk.free_bytes("/data") == (10, 0)
    file.truncate(4)
    file.pwrite(b"abcd", 4)
    assert disk.free_bytes("/data") == (10, 2)
    disk.remove("/data/a")
    assert disk.free_bytes("/data") == (10, 10)


def test_bits_rot_durably() -> None:
    disk: Disk = MemDisk()
    assert isinstance(disk, MemDisk)
    disk.write_file("/data/t-0/log", b"\x00\x00")
    disk.flip_bits("/data/t-0/log", 1, 0x10)
    disk.crash()
    assert disk.read_file("/data/t-0/log") == b"\x00\x10"
