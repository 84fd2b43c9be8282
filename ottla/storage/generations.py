"""The generations of a log directory: random ids in a file of the directory. A starting broker appends a new id before it registers, if a
controller has noted the last id or there is none. Otherwise the broker registers with the last id again. Beside each id the file has the
number of its renewals.

The controller notes the newest id in the metadata store when the broker has registered. An older copy of the directory lacks the noted id,
so the controller recognizes a disk that was set back to an earlier state (`controller/membership.py`). A copy that was made during the
present run has the id. So a running broker renews its generation at an interval: it raises the number first in the file and then in the
metadata store (`server/directories/generation_renewals.py`). If the file has the id of the store with a lower number, the directory is an
older copy. `compare` then replaces all ids by a new id, so that the directory lacks the noted id and the controller refuses it. Invariant:
the number in the file is never lower than the number in the store, whenever the broker was killed. If the file lacks the id of the store
from the beginning, `compare` changes nothing: the controller refuses this directory anyway.

One gap remains. A broker may be killed after the controller has noted its id, but before the broker has stored this in the file. The next
run then registers with the same id, and an older copy from the ended run is not recognized.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.cluster_metadata import Renewal
from ottla.base.ports import Disk, Random
from ottla.base.uuids import uuid_to_text
from ottla.storage.small_files import read_whole, write_atomically

GENERATIONS_FILE = ".ottla-generations"
NOTED = "noted"
DIGITS_MAX = 18
"""Digits of a number of renewals. `int` refuses the thousands that a damaged file may have."""
KEPT_MAX = 32
"""Generations that a directory remembers. One is enough, except after the metadata store was restored from an older copy."""


class _Stored(NamedTuple):
    """`is_noted`: a controller has noted the newest generation."""

    generations: tuple[Renewal, ...]
    is_noted: bool

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(found.generation for found in self.generations)


def begin(disk: Disk, directory: str, random: Random) -> tuple[str, ...]:
    """Appends a new id durably, if a controller has noted the newest one or there is none. Returns the remembered ids, the newest last.
    Raises `StorageError`.
    """
    found = _read(disk, directory)
    if found.is_noted or not found.generations:
        found = _Stored((*found.generations, _new(random))[-KEPT_MAX:], is_noted=False)
        _write(disk, directory, found)
    return found.ids


def note(disk: Disk, directory: str) -> None:
    """Stores that a controller has noted the newest generation, so that the next run begins another generation. Raises `StorageError`."""
    found = _read(disk, directory)
    if found.generations and not found.is_noted:
        _write(disk, directory, found._replace(is_noted=True))


def renew(disk: Disk, directory: str) -> Renewal | None:
    """Counts one more renewal of the newest generation durably. Returns None if no controller has noted it. Raises `StorageError`."""
    found = _read(disk, directory)
    if not found.is_noted or not found.generations:
        return None
    newest = found.generations[-1]
    renewed = Renewal(newest.generation, newest.number + 1)
    _write(disk, directory, found._replace(generations=(*found.generations[:-1], renewed)))
    return renewed


def compare(disk: Disk, directory: str, random: Random, stored: Renewal) -> tuple[str, ...]:
    """Returns the ids of the directory. If the directory has the generation of `stored` with a lower number, it is an older copy: replaces
    all its ids by a new id. Raises `StorageError`."""
    found = _read(disk, directory)
    if any(own.generation == stored.generation and own.number < stored.number for own in found.generations):
        found = _Stored((_new(random),), is_noted=False)
        _write(disk, directory, found)
    return found.ids


def _new(random: Random) -> Renewal:
    return Renewal(uuid_to_text(random.token_bytes(16)), 0)


def _read(disk: Disk, directory: str) -> _Stored:
    """Reads the file. A damaged id is not the one that the controller has noted, so the directory is not accepted. A damaged number counts
    as 0."""
    lines = (read_whole(disk, f"{directory}/{GENERATIONS_FILE}") or b"").decode(errors="replace").split()
    is_noted = lines[-1:] == [NOTED]
    found = [line.partition(":") for line in (lines[:-1] if is_noted else lines)[-KEPT_MAX:]]
    renewals = [Renewal(name, int(number) if number.isdecimal() and len(number) <= DIGITS_MAX else 0) for name, _, number in found]
    return _Stored(tuple(renewals), is_noted)


def _write(disk: Disk, directory: str, stored: _Stored) -> None:
    lines = [f"{found.generation}:{found.number}" if found.number else found.generation for found in stored.generations]
    lines += [NOTED] * stored.is_noted
    write_atomically(disk, f"{directory}/{GENERATIONS_FILE}", "".join(f"{line}\n" for line in lines).encode())
