"""Removes or completes what a crash has left of a removal or replacement of segments (`file_renames.py`), before a log is opened.

After a power failure each creation, renaming and removal that was not synced may be kept or lost, in any order. So every step that relies
on an earlier one is separated from it by a sync of the directory, here too: a start may be interrupted as well.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.ports import Disk
from ottla.storage.file_renames import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, offset_of
from ottla.storage.scan import DamageError, scan_batches
from ottla.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES


def finish_leftovers(disk: Disk, directory: str, note: Callable[[str], object]) -> list[str]:
    """Removes or completes leftovers. Returns the names of the remaining files."""
    names = disk.listdir(directory)
    swapped = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if swapped and any(name.endswith(CLEANED_SUFFIX) for name in names):
        for name in swapped:  # not all new files are renamed, so all old segments still exist
            disk.remove(f"{directory}/{name}")
        disk.sync_directory(directory)
        swapped = []
    leftovers = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp"))]
    for name in leftovers:
        disk.remove(f"{directory}/{name}")
    if swapped:
        _finish_swap(disk, directory, names, swapped)
        bases = [name for name in swapped if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        note(f"finished the swap of {len(bases)} compacted segments")
    return disk.listdir(directory) if leftovers or swapped else names


def _finish_swap(disk: Disk, directory: str, names: list[str], swapped: list[str]) -> None:
    """Installs a complete result of compaction: removes the old segments in its range and renames the `.swap` files."""
    bases = [base for name in swapped if (base := offset_of(name, LOG_SUFFIX + SWAP_SUFFIX)) is not None]
    ends = [_end_of_file(disk, f"{directory}/{base:020d}{LOG_SUFFIX}{SWAP_SUFFIX}", base) for base in bases]
    for name in names:
        base = offset_of(name, LOG_SUFFIX)
        if base is None or not bases or not min(bases) <= base < max(ends):
            continue
        if base in bases or _end_of_file(disk, f"{directory}/{name}", base) <= max(ends):
            for suffix in SEGMENT_SUFFIXES:
                disk.remove(f"{directory}/{base:020d}{suffix}")
    disk.sync_directory(directory)
    for name in swapped:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    disk.sync_directory(directory)


def _end_of_file(disk: Disk, path: str, base: int) -> int:
    file = disk.open(path)
    end = base
    try:
        for _, header, _ in scan_batches(file, 0, file.size(), next_offset=base):
            end = header.next_offset
    except DamageError:
        pass  # the torn end of an active segment; the batches before it count
    finally:
        file.close()
    return end
