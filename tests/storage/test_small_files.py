"""Small files: they have Kafka's bytes, are replaced atomically, and an error names their damage."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.base.types import TopicPartition
from ottla.storage import small_files
from ottla.storage.small_files import MetaProperties
from tests.fakes.disk import MemDisk
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import ROOT

PATH = f"{ROOT}/{small_files.RECOVERY_POINT_FILE}"


def test_offset_checkpoints_are_kafkas_and_come_back_sorted() -> None:
    disk = MemDisk(ROOT)
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 1 << 40, TopicPartition("a", 2): 0}
    small_files.write_offsets(disk, PATH, offsets)
    assert disk.read_file(PATH) == b"0\n3\na 2 0\na 10 1099511627776\nb 1 7\n"
    assert small_files.read_offsets(disk, PATH) == offsets


def test_a_missing_checkpoint_is_empty() -> None:
    assert small_files.read_offsets(MemDisk(ROOT), PATH) == {}


@pytest.mark.parametrize("data", [b"", b"0", b"7\n0\n", b"0\n2\na 1 2\n", b"0\n1\na b c\n", b"0\n1\na 1\n", b"0\nx\n", b"\xff\n\xff\n"])
def test_damage_is_named(data: bytes) -> None:
    disk = MemDisk(ROOT)
    disk.write_file(PATH, data)
    with pytest.raises(StorageError, match=PATH):
        small_files.read_offsets(disk, PATH)


def test_a_crash_at_any_step_leaves_the_old_or_the_new() -> None:
    disk = MemDisk(ROOT)
    small_files.write_atomically(disk, PATH, b"old and longer")
    images: list[bytes] = []
    for seed in range(8):
        random = SeededRandom(seed)
        disk.on_change = lambda _operation, _path, random=random: images.append(disk.image(random).read_file(PATH))
        small_files.write_atomically(disk, PATH, b"new")
        disk.on_change = None
        assert disk.image().read_file(PATH) == b"new"
        small_files.write_atomically(disk, PATH, b"old and longer")
    assert set(images) == {b"old and longer", b"new"}


def test_a_failed_write_leaves_the_old() -> None:
    disk = MemDisk(ROOT)
    small_files.write_atomically(disk, PATH, b"old")
    for operation in ("open", "write", "sync", "rename"):
        disk.fail_next(operation)
        with pytest.raises(StorageError):
            small_files.write_atomically(disk, PATH, b"new")
        assert disk.read_file(PATH) == b"old"


def test_meta_properties_come_back() -> None:
    disk = MemDisk(ROOT)
    assert small_files.read_meta_properties(disk, ROOT) is None
    small_files.write_meta_properties(disk, ROOT, MetaProperties(broker_id=3, cluster_id="abc", directory_id="d"))
    assert disk.read_file(f"{ROOT}/meta.properties") == b"version=0\nbroker.id=3\ncluster.id=abc\ndirectory.id=d\n"
    found = small_files.read_meta_properties(disk, ROOT)
    assert found is not None and (found.broker_id, found.cluster_id, found.directory_id) == (3, "abc", "d")


def test_meta_properties_of_a_newer_kafka_are_read() -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/meta.properties", b"#\n#Sat Nov 21 12:00:00 UTC 2026\nnode.id=5\nversion=1\ncluster.id=x\n")
    found = small_files.read_meta_properties(disk, ROOT)
    assert found is not None and (found.broker_id, found.cluster_id, found.directory_id) == (5, "x", "")


@pytest.mark.parametrize(
    "text", ["version=2\n", "broker.id=1\n", "version=0\ncluster.id=x\n", "version=0\nbroker.id=one\n", "version=0\nbroker.id=1\n", "?"]
)
def test_meta_properties_that_say_nothing_are_refused(text: str) -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/meta.properties", text.encode())
    with pytest.raises(StorageError, match=r"meta\.properties"):
        small_files.read_meta_properties(disk, ROOT)


def test_partition_metadata_holds_the_topic_id() -> None:
    disk = MemDisk(ROOT)
    small_files.write_topic_id(disk, ROOT, bytes(range(16)))
    assert disk.read_file(f"{ROOT}/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert small_files.read_topic_id(disk, ROOT) == bytes(range(16))
    for torn in (b"", b"version: 0\n", b"version: 0\ntopic_id: AAEC", b"\0" * 44):
        disk.write_file(f"{ROOT}/partition.metadata", torn)
        assert small_files.read_topic_id(disk, ROOT) is None


def test_the_clean_shutdown_marker_serves_once() -> None:
    disk = MemDisk(ROOT)
    assert not small_files.take_clean_shutdown(disk, ROOT)
    small_files.write_clean_shutdown(disk, ROOT)
    disk.crash()
    assert small_files.take_clean_shutdown(disk, ROOT)
    disk.crash()
    assert not small_files.take_clean_shutdown(disk, ROOT)
