"""Cuts the files of a log at the offset where `recovery.py` has found damage, or before an earlier batch if the header of that batch is
damaged too.

Another replica has the records from there on, or an operator accepts their loss. This module does not check CRCs: recovery calls it, and
then reads and checks the shorter log. `server/replica_changes.py` decides whether the log may be cut.
"""

from __future__ import annotations

from ottla.base.ports import Disk, File
from ottla.storage.file_renames import offset_of
from ottla.storage.scan import DamageError, scan_batches
from ottla.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX
from ottla.storage.small_files import write_cut


def remove_from(disk: Disk, directory: str, first: int) -> int:
    """Removes, durably, the batch that holds offset `first` and all later batches, and notes the offset in a file. Returns the base offset
    of the last segment that is left, 0 if none is."""
    write_cut(disk, directory, first)
    bases = sorted(base for name in disk.listdir(directory) if (base := offset_of(name, LOG_SUFFIX)) is not None)
    for base in reversed([base for base in bases if base >= first]):
        for suffix in SEGMENT_SUFFIXES:
            disk.remove(f"{directory}/{base:020d}{suffix}")
    last = max((base for base in bases if base < first), default=None)
    if last is not None:
        _cut_segment(disk, f"{directory}/{last:020d}", last, first)
    disk.sync_directory(directory)
    return last or 0


def _cut_segment(disk: Disk, path: str, base: int, first: int) -> None:
    """Cuts one segment before the batch that holds `first`, or before a batch with a damaged header. Removes its indexes, which the next
    opening rebuilds.
    """
    file = disk.open(f"{path}{LOG_SUFFIX}")
    try:
        file.truncate(_place(file, base, first))
        file.sync()
    finally:
        file.close()
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        disk.remove(f"{path}{suffix}")


def _place(file: File, base: int, first: int) -> int:
    """Returns the position of the cut. If the disk cannot be read, nothing may be cut: raises `DiskError`."""
    position = 0
    try:
        for position_of, header, _ in scan_batches(file, 0, file.size(), next_offset=base):
            if header.next_offset > first:
                break
            position = position_of + header.size_bytes
    except DamageError as error:
        return error.position  # the last batch that was yielded may be the damaged one (`scan.py`)
    return position
