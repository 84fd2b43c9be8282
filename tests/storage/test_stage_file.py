"""Files of staged chunks: positions, damage, and their removal at the start of a broker."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.storage.stage_file import SUFFIX, StageFile, sweep
from tests.fakes.disk import MemDisk

PATH = f"/data/1{SUFFIX}"


def contents(file: StageFile, position: int, length: int) -> bytes:
    buffer = bytearray(length)
    return bytes(buffer[: file.read(position, memoryview(buffer))])


def test_chunks_stand_one_behind_the_other() -> None:
    file = StageFile(MemDisk("/data"), PATH)
    assert [file.append(b"abc"), file.append(memoryview(b"de"))] == [0, 3]
    assert (file.size_bytes, contents(file, 3, 2), contents(file, 0, 3)) == (5, b"de", b"abc")
    assert contents(file, 3, 9) == b"de", "the file ends there"


def test_a_failed_write_leaves_its_place_to_the_next() -> None:
    disk = MemDisk("/data")
    file = StageFile(disk, PATH)
    file.append(b"abc")
    disk.fail_next("write", written_bytes=1)
    with pytest.raises(StorageError):
        file.append(b"xyz")
    assert file.append(b"de") == 3
    assert contents(file, 3, 2) == b"de"


def test_a_file_that_is_gone_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="is gone"):
        StageFile(MemDisk("/data"), PATH).read(0, memoryview(bytearray(1)))


def test_a_start_removes_what_was_left() -> None:
    disk = MemDisk("/data")
    StageFile(disk, PATH).append(b"abc")
    disk.open("/data/meta.properties", create=True)
    assert sweep(disk, "/data") == 1
    assert disk.listdir("/data") == ["meta.properties"]
