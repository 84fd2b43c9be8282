"""Which cluster the log directories of a broker belong to: all directories are examined, not only the first."""

from __future__ import annotations

import pytest

from ottla.base.errors import StorageError
from ottla.cluster.cluster_id import KnownCluster
from ottla.server.directories.claims import known_cluster
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.storage.small_files import MetaProperties, write_meta_properties
from tests.fakes import MemDisk


def directories_on(disk: MemDisk) -> list[LogDirectoryState]:
    return [LogDirectoryState(disk, path) for path in ("/a", "/b", "/c")]


def own(disk: MemDisk, *paths: str) -> None:
    for path in paths:
        write_meta_properties(disk, path, MetaProperties(broker_id=1, cluster_id="one", directory_id=path[1:]))


def test_new_directories_know_no_cluster() -> None:
    assert known_cluster(directories_on(MemDisk("/a", "/b", "/c"))) is None


def test_a_directory_with_logs_counts_wherever_it_is() -> None:
    """Otherwise a broker that has lost its metadata store would start, and treat its logs as logs of deleted topics."""
    disk = MemDisk("/a", "/b", "/c/t-0")
    own(disk, "/b", "/c")
    assert known_cluster(directories_on(disk)) == KnownCluster(cluster_id="one", directory="/b", has_logs=False)
    disk.write_file("/c/t-0/partition.metadata", b"version: 0")
    assert known_cluster(directories_on(disk)) == KnownCluster(cluster_id="one", directory="/c", has_logs=True)


def test_an_unreadable_directory_is_offline_and_the_last_one_prevents_the_start() -> None:
    disk = MemDisk("/a", "/b", "/c")
    own(disk, "/a", "/b", "/c")
    disk.write_file("/a/meta.properties", b"version=7")
    made = directories_on(disk)
    known = known_cluster(made)
    assert known is not None and known.directory == "/b"
    assert [directory.is_online for directory in made] == [False, True, True]
    for path in ("/b", "/c"):
        disk.write_file(f"{path}/meta.properties", b"version=7")
    with pytest.raises(StorageError, match="version '7'"):
        known_cluster(directories_on(disk))
