"""Compares the log directories of a single broker with the log directories of its last start.

If the broker has several log directories, each has a file with the ids and paths of all. Without this file, a start that lacks one of the
directories would create its logs again, empty. A broker of a cluster has no such file: its replicas fetch missing records from the leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import DirectoryRefused
from ottla.base.ports import Disk
from ottla.storage.small_files import read_meta_properties, read_topic_id, read_whole, write_atomically

COMPANIONS_FILE = "ottla-directories"
"""A line for each log directory of the broker: its id, a space, its path."""


class Absent(NamedTuple):
    """A log directory that the broker had and that is in none of `log.dirs` now."""

    directory_id: str
    path: str
    """The last known path."""
    files: list[str]
    """The files that name the directory."""


def find_absent(disk: Disk, paths: Sequence[str]) -> Absent | None:
    """Returns a directory that the files in `paths` name, but that is in none of `paths` according to its id; None if there is none. The
    returned path may be one of `paths`, if the directory there is empty or not mounted. Raises `StorageError`."""
    owners = [read_meta_properties(disk, path) for path in paths]
    present = {owner.directory_id for owner in owners if owner is not None}
    noted = {f"{path}/{COMPANIONS_FILE}": _read(disk, path) for path in paths}
    for companions in noted.values():
        for directory_id, path in companions.items():
            if directory_id not in present:
                return Absent(directory_id, path, [file for file, found in noted.items() if directory_id in found])
    return None


def _read(disk: Disk, directory: str) -> dict[str, str]:
    """Returns the noted paths by directory id."""
    lines = (read_whole(disk, f"{directory}/{COMPANIONS_FILE}") or b"").decode(errors="replace").splitlines()
    return {directory_id: path for directory_id, _, path in (line.partition(" ") for line in lines)}


def refuse_absent(disk: Disk, paths: Sequence[str]) -> None:
    """Raises `DirectoryRefused` if one of the broker's directories is absent."""
    absent = find_absent(disk, paths)
    if absent is not None:
        lost = f"the log directory {absent.path} (directory.id={absent.directory_id}) is missing or empty"
        way_on = f"mount it, or correct log.dirs; to start without its logs, remove {' and '.join(absent.files)}"
        raise DirectoryRefused(f"{lost}; {way_on}", absent.path)


def note_companions(disk: Disk, paths: Mapping[str, str], *, are_all: bool) -> None:
    """Writes the file into each of `paths` (path by directory id), if the broker has more than one directory. Unless `are_all`, the broker
    has further directories, and the file continues to name them. Raises `StorageError`.
    """
    noted: dict[str, str] = {}
    for path in () if are_all else paths.values():
        noted |= _read(disk, path)
    noted |= paths
    wanted = "".join(f"{directory_id} {path}\n" for directory_id, path in noted.items()).encode()
    for path in paths.values() if len(noted) > 1 else ():
        file = f"{path}/{COMPANIONS_FILE}"
        if read_whole(disk, file) != wanted:
            write_atomically(disk, file, wanted)


def refuse_duplicates(disk: Disk, name: str, directories: Sequence[str]) -> None:
    """Raises `DirectoryRefused` if several log directories hold the same log. Apache Kafka refuses them too. One of the logs is stale, and
    the broker does not know which. The left-over log of a deleted topic with the same name is ignored. `name`: the name of the log's
    directory. A log without a topic id is not compared.
    """
    seen: dict[bytes, str] = {}
    for path in [f"{directory}/{name}" for directory in directories]:
        topic_id = read_topic_id(disk, path)
        if topic_id in seen:
            way_on = "compare them with `ottla log dump`, and move one of them out of log.dirs"
            raise DirectoryRefused(f"the log of {name} is in {seen[topic_id]} and in {path}; {way_on}", path)
        if topic_id is not None:
            seen[topic_id] = path
