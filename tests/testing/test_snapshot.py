"""Which files of a snapshot are links, which are copies, and which stay behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ottla.testing.snapshot import copy_data


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "data"
    partition = source / "orders-0"
    partition.mkdir(parents=True)
    for base in (0, 100, 200):
        (partition / f"{base:020}.log").write_bytes(b"batch" * (base + 1))
        (partition / f"{base:020}.index").write_bytes(b"index")
    (partition / f"{50:020}.log.deleted").write_bytes(b"old")
    (source / "gone-0.abc-delete").mkdir()
    for name in ("meta.properties", ".lock", "ottla-metadata.sqlite", "ottla-metadata.sqlite-wal", "ottla-metadata.sqlite-shm"):
        (source / name).write_text(name)
    return source


def names_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_what_belongs_to_the_process_stays_behind(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    top = [name for name in names_in(copy) if "/" not in name]
    assert top == ["meta.properties", "ottla-metadata.sqlite", "ottla-metadata.sqlite-wal"]
    assert sorted(os.listdir(copy)) == [*sorted(["meta.properties", "orders-0", "ottla-metadata.sqlite", "ottla-metadata.sqlite-wal"])]
    assert not any("deleted" in name for name in names_in(copy))


def test_sealed_segments_are_links_and_the_last_one_is_not(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    names = [f"orders-0/{base:020}.log" for base in (0, 100, 200)]
    assert [os.path.samefile(source / name, copy / name) for name in names] == [True, True, False]
    assert not os.path.samefile(source / f"orders-0/{0:020}.index", copy / f"orders-0/{0:020}.index")
    assert all((source / name).read_bytes() == (copy / name).read_bytes() for name in names)


def test_appends_to_the_original_do_not_reach_the_copy(source: Path, tmp_path: Path) -> None:
    copy = copy_data(source, tmp_path / "copy")
    last = f"orders-0/{200:020}.log"
    before = (copy / last).read_bytes()
    with (source / last).open("ab") as file:
        file.write(b"later")
    assert (copy / last).read_bytes() == before


def test_without_links_and_fast_copies_there_are_plain_ones(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    copy = copy_data(source, tmp_path / "copy")
    name = f"orders-0/{0:020}.log"
    assert (copy / name).read_bytes() == (source / name).read_bytes()
    assert not os.path.samefile(source / name, copy / name)


def test_a_snapshot_is_never_written_over(source: Path, tmp_path: Path) -> None:
    copy_data(source, tmp_path / "copy")
    with pytest.raises(FileExistsError):
        copy_data(source, tmp_path / "copy")
