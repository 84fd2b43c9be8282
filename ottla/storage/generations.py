"""The generations of a log directory: random ids in a file of the directory. Each life of the broker appends one.

The controller notes the newest one in the metadata store when the broker has registered. An older copy of the directory lacks the noted id,
so the controller recognizes a disk that was set back to an earlier state (`controller/membership.py`). A copy that was made during the
present life has the id, and passes.

A life appends its id before it registers. If the broker ends before a controller has dealt with the registration, the next life registers
with the same id: the id may be noted or not, and nothing was written to the logs.
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
    """Begins a generation of a directory durably, if the newest one was noted; returns all that are remembered, the newest last. Raises
    `StorageError`."""
    ids, is_noted = _read(disk, directory)
    if is_noted or not ids:
        ids = (*ids, uuid_to_text(random.token_bytes(16)))[-KEPT_MAX:]
        _write(disk, directory, ids, is_noted=False)
    return ids


def note(disk: Disk, directory: str) -> None:
    """A controller has noted the newest generation, so the next life begins another one. Raises `StorageError`."""
    ids, is_noted = _read(disk, directory)
    if ids and not is_noted:
        _write(disk, directory, ids, is_noted=True)


def _read(disk: Disk, directory: str) -> tuple[tuple[str, ...], bool]:
    """A damaged file holds no id that was noted, so the directory does not count as proved."""
    lines = (read_whole(disk, f"{directory}/{GENERATIONS_FILE}") or b"").decode(errors="replace").split()
    is_noted = lines[-1:] == [NOTED]
    return tuple(lines[:-1] if is_noted else lines)[-KEPT_MAX:], is_noted


def _write(disk: Disk, directory: str, ids: tuple[str, ...], *, is_noted: bool) -> None:
    lines = [*ids, *[NOTED] * is_noted]
    write_atomically(disk, f"{directory}/{GENERATIONS_FILE}", "".join(f"{line}\n" for line in lines).encode())
