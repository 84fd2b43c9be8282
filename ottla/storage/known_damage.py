"""Stores the base offsets of a log's damaged segments in a file of its directory. After a restart they are repaired before a reader finds
them.

The file is written when damage is found and removed when nothing is damaged. It only names segments to check; each is checked again before
it is repaired. `server/repair/repairs.py` checks and repairs them.
"""

from __future__ import annotations

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.storage.small_files import read_lines, write_lines

KNOWN_DAMAGE_FILE = "damaged-segments"


def read(disk: Disk, directory: str, notes: list[str]) -> frozenset[int]:
    """Returns the base offsets of the segments that were damaged when the log was last open. Adds a line to `notes` if the file cannot be
    read.
    """
    try:
        return frozenset(read_lines(disk, f"{directory}/{KNOWN_DAMAGE_FILE}", lambda fields: int(fields[0]), 1) or ())
    except StorageError as error:
        notes.append(f"{error}; damage that was known is found again by a reader or by the scrub")
        return frozenset()


def write(disk: Disk, directory: str, base_offsets: frozenset[int]) -> None:
    """Stores the base offsets, or removes the file if there are none. Raises `StorageError`."""
    path = f"{directory}/{KNOWN_DAMAGE_FILE}"
    if base_offsets:
        write_lines(disk, path, [str(base_offset) for base_offset in sorted(base_offsets)], is_durable=False)
    else:
        disk.remove(path)
