"""The generations of a log directory: random ids in a file of the directory. Each run of the broker that registers appends one.

The controller notes the newest one in the metadata store when the broker has registered. An older copy of the directory lacks the noted id,
so the controller recognizes a disk that was set back to an earlier state (`controller/membership.py`). A copy that was made during the
present run has the id, so it is accepted.

A broker appends the id before it registers. If it ends before a controller has processed the registration, its next run registers with the
same id: the controller may have noted the id or not, and nothing was written to the logs.
"""

from __future__ import annotations

from ottla.base.ports import Disk, Random
from ottla.base.uuids import uuid_to_text
from ottla.storage.small_files import read_whole, write_atomically

GENERATIONS_FILE = ".ottla-generations"
NOTED = "noted"
KEPT_MAX = 32
"""Generations that a directory remembers. One is enough, except after the metadata store was restored from an older copy."""


def begin(disk: Disk, directory: str, random: Random) -> tuple[str, ...]:
    """Appends a new id durably, if a controller has noted the newest one or there is none. Returns the remembered ids, the newest last.
    Raises `StorageError`.
    """
    ids, is_noted = _read(disk, directory)
    if is_noted or not ids:
        ids = (*ids, uuid_to_text(random.token_bytes(16)))[-KEPT_MAX:]
        _write(disk, directory, ids, is_noted=False)
    return ids


def note(disk: Disk, directory: str) -> None:
    """Stores that a controller has noted the newest generation, so that the next run begins another one. Raises `StorageError`."""
    ids, is_noted = _read(disk, directory)
    if ids and not is_noted:
        _write(disk, directory, ids, is_noted=True)


def _read(disk: Disk, directory: str) -> tuple[tuple[str, ...], bool]:
    """Returns the ids, and whether a controller has noted the newest one. A damaged file holds no noted id, so the controller does not
    accept the directory as current.
    """
    lines = (read_whole(disk, f"{directory}/{GENERATIONS_FILE}") or b"").decode(errors="replace").split()
    is_noted = lines[-1:] == [NOTED]
    return tuple(lines[:-1] if is_noted else lines)[-KEPT_MAX:], is_noted


def _write(disk: Disk, directory: str, ids: tuple[str, ...], *, is_noted: bool) -> None:
    lines = [*ids, *[NOTED] * is_noted]
    write_atomically(disk, f"{directory}/{GENERATIONS_FILE}", "".join(f"{line}\n" for line in lines).encode())
