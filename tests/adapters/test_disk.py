"""The production disk and the one in memory answer alike; then what only each of them can show: the kernel's errors, and crashes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.adapters import disk as disk_module
from ottla.adapters.disk import OsDisk
from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from tests.fakes import MemDisk

Place = tuple[Disk, str]


@pytest.fixture(params=["os", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A disk and a directory on it."""
    if request.param == "os":
        return OsDisk(), str(tmp_path)
    return MemDisk("/data"), "/data"


def test_bytes_come_back_from_where_they_were_put(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.pwrite(b"hello world", 0)
    file.pwrite(memoryview(b"W"), 6)
    file.pwrite(bytearray(b"!"), 11)
    assert file.size() == 12
    assert file.pread(5, 6) == b"World"
    assert file.pread(100, 6) == b"World!"
    assert file.pread(10, 12) == file.pread(10, 99) == b""
    buffer = bytearray(b"........")
    first, last = memoryview(buffer)[:5], memoryview(buffer)[6:]
    assert [file.pread_into(first, 6), file.pread_into(last, 10), file.pread_into(buffer, 12)] == [5, 2, 0]
    assert buffer == b"World.d!", "what the file does not have stays"
    file.close()
    again = disk.open(f"{root}/a")
    assert again.pread(12, 0) == b"hello World!"
    assert again.path == f"{root}/a"
    again.close()


def test_writing_past_the_end_and_truncating_fill_with_zeros(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    file.pwrite(b"x", 3)
    assert file.pread(9, 0) == b"\0\0\0x"
    file.truncate(2)
    assert file.pread(9, 0) == b"\0\0"
    file.truncate(4)
    assert file.pread(9, 0) == b"\0\0\0\0"
    file.sync()
    file.close()
    file.close()


def test_a_missing_file_is_found_missing_and_made_only_on_request(place: Place) -> None:
    disk, root = place
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")
    with pytest.raises(StorageError, match="no/a"):
        disk.open(f"{root}/no/a", create=True)
    assert not disk.exists(f"{root}/a")
    assert not disk.exists(f"{root}/a/below")
    disk.open(f"{root}/a", create=True).close()
    assert disk.exists(f"{root}/a")
    with pytest.raises(StorageError):
        disk.open(root)


def test_directories_are_made_listed_and_removed(place: Place) -> None:
    disk, root = place
    disk.makedirs(f"{root}/t/deep")
    disk.makedirs(f"{root}/t/deep")
    for name in ("b", "a", "c"):
        disk.open(f"{root}/t/{name}", create=True).close()
    assert disk.listdir(f"{root}/t") == ["a", "b", "c", "deep"]
    disk.sync_directory(f"{root}/t")
    disk.remove(f"{root}/t/b")
    disk.remove(f"{root}/t/b")
    assert disk.listdir(f"{root}/t") == ["a", "c", "deep"]
    with pytest.raises(StorageError):
        disk.remove(f"{root}/t/deep")
    disk.remove_tree(f"{root}/t")
    disk.remove_tree(f"{root}/t")
    assert disk.listdir(root) == []
    for call in (disk.listdir, disk.sync_directory, disk.free_bytes):
        with pytest.raises(StorageError, match="/t"):
            call(f"{root}/t")


def test_renaming_replaces_and_moves_whole_directories(place: Place) -> None:
    disk, root = place
    disk.makedirs(f"{root}/t-0")
    for name, data in (("new", b"new"), ("old", b"older")):
        file = disk.open(f"{root}/t-0/{name}", create=True)
        file.pwrite(data, 0)
        file.close()
    disk.rename(f"{root}/t-0/new", f"{root}/t-0/old")
    disk.rename(f"{root}/t-0", f"{root}/t-0-delete")
    assert disk.listdir(f"{root}/t-0-delete") == ["old"]
    file = disk.open(f"{root}/t-0-delete/old")
    assert file.pread(9, 0) == b"new"
    file.close()
    with pytest.raises(StorageError):
        disk.rename(f"{root}/gone", f"{root}/anywhere")


def test_free_space_is_within_the_total(place: Place) -> None:
    disk, root = place
    total, usable = disk.free_bytes(root)
    assert 0 < usable <= total


def test_file_systems_are_synced(place: Place) -> None:
    disk, root = place
    disk.makedirs(f"{root}/a")
    disk.open(f"{root}/a/file", create=True).close()
    disk.sync_file_systems([root, f"{root}/a", f"{root}/a/file"])
    disk.sync_file_systems([])
    if isinstance(disk, MemDisk):
        assert disk.image().exists(f"{root}/a/file")
        assert disk.sync_file_systems([root])


def test_only_the_real_disk_has_descriptors(place: Place) -> None:
    disk, root = place
    file = disk.open(f"{root}/a", create=True)
    if isinstance(disk, MemDisk):
        assert file.fileno() == -1
    else:
        file.pwrite(b"abc", 0)
        assert os.pread(file.fileno(), 3, 0) == b"abc"
    file.close()


def _raise(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("pread", lambda f: f.pread(1, 0)),
        ("preadv", lambda f: f.pread_into(bytearray(1), 0)),
        ("pwrite", lambda f: f.pwrite(b"x", 0)),
        ("ftruncate", lambda f: f.truncate(0)),
        ("fstat", lambda f: f.size()),
    ],
)
def test_the_kernels_errors_become_one_sentence(
    name: str, method: Callable[[disk_module.OsFile], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, name, _raise(errno.ENOSPC))
    with pytest.raises(StorageError, match=r"^cannot .*/a: No space left on device$"):
        method(file)
    monkeypatch.undo()
    file.close()


def test_a_failed_sync_is_never_retried_as_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(disk_module, "_sync_descriptor", _raise(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        file.sync()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="an earlier sync failed"):
        file.sync()
    file.close()


class SyncFs:
    """A C library whose syncfs fails for one file system."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def syncfs(self, descriptor: int) -> int:
        self.synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        ctypes.set_errno(errno.EIO)
        return -1


def test_a_file_system_that_cannot_be_synced_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = SyncFs()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: library)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(StorageError, match=r"^cannot sync the file system of .*/b: Input/output error$"):
        OsDisk().sync_file_systems([str(tmp_path / "a"), str(tmp_path / "b")])
    assert library.synced == [str(tmp_path / "b")], "both are in one file system"
    with pytest.raises(StorageError, match=r"/missing: No such file"):
        OsDisk().sync_file_systems([str(tmp_path / "missing")])


@pytest.mark.parametrize(
    ("release", "is_reported"),
    [("4.18.0-553.el8_10.x86_64", False), ("5.7.19", False), ("5.8.0", True), ("5.10.0-8-amd64", True), ("6.1", True), ("odd", False)],
)
def test_the_release_of_linux_says_whether_a_failed_write_is_reported(
    release: str, is_reported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def syncfs(self, descriptor: int) -> int:
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: Library())
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert OsDisk().sync_file_systems([str(tmp_path)]) is is_reported


def test_a_system_without_syncfs_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_options: SimpleNamespace())
    assert not OsDisk().sync_file_systems([str(tmp_path)])


def test_short_reads_and_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pread, preadv, pwrite = os.pread, os.preadv, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, length, position: pread(fd, min(length, 3), position))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, position: preadv(fd, [memoryview(buffers[0])[:3]], position))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, bytes(data)[:3], position))
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.pwrite(b"0123456789", 0)
    buffer = bytearray(7)
    assert (file.pread_into(buffer, 1), buffer) == (7, b"1234567")
    assert (file.pread_into(buffer, 5), buffer) == (5, b"5678967"), "up to the end of the file"
    assert file.pread(10, 0) == b"0123456789"
    assert file.pread(100, 4) == b"456789"
    file.close()
