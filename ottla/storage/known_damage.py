"""The damaged segments of a log, in a file of its directory. After a restart the damage is known before a reader comes to it.

The file is written when damage is found and removed when nothing is damaged. It only says which segments to check: the result of the check
counts. Left out: who checks and repairs them (`server/repair/repairs.py`).
"""

from __future__ import annotations

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.storage.small_files import read_lines, write_lines

KNOWN_DAMAGE_FILE = "damaged-segments"


def read(disk: Disk, directory: str, notes: list[str]) -> frozenset[int]:
    """The base offsets of the segments that were damaged when the log was last open."""
    try:
        return frozenset(read_lines(disk, f"{directory}/{KNOWN_DAMAGE_FILE}", lambda fields: int(fields[0]), 1) or ())
    except StorageError as error:
        notes.append(f"{error}; damage that was known is found again by a reader or by the scrub")
        return frozenset()


def write(disk: Disk, directory: str, base_offsets: frozenset[int]) -> None:
    """Raises `StorageError`."""
    path = f"{directory}/{KNOWN_DAMAGE_FILE}"
    if base_offsets:
        write_lines(disk, path, [str(base_offset) for base_offset in sorted(base_offsets)], is_durable=False)
    else:
        disk.remove(path)
