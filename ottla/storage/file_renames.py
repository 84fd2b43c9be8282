"""Renames files to remove segments from a log or to replace them by compacted ones. After a crash at any moment the log has the old or the
new segments, and readers are not disturbed.

Removal: the files of a segment get the suffix `.deleted`. Readers with a slice continue on the open descriptor, and the files are removed
later, or by the next start. Replacement, as in Kafka: compaction has written and synced `.cleaned` files, which a restart removes. They are
renamed to `.swap`. Once these names are durable, a restart finishes the replacement (`leftovers.py`): it removes the old
segments, and the `.swap` files lose their suffix. Invariant: from the names on disk a restart can always restore either all
old segments or all new ones.

A compacted segment may end before the next segment begins; elsewhere such a gap is damage. So the log records how far it was ever
compacted, in the name of an empty file, `%020d.compacted`. The name is durable before the first gap exists. This module does not write the
contents of the new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.base.ports import Disk
from ottla.storage.segment import SEGMENT_SUFFIXES, Segment

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
COMPACTED_SUFFIX = ".compacted"

STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_DELETE_SUFFIX = "-delete"
_NAME_MAX = 255
_NAME_DIGITS = 20
_UNIQUE_DIGITS = 32


def retire_files(disk: Disk, segment: Segment) -> list[str]:
    """Renames the files of a segment that was removed from its log. Returns the new paths, which the caller removes later."""
    segment.release_file()
    retired = []
    for path in segment.files():
        disk.rename(path, path + DELETED_SUFFIX)
        retired.append(path + DELETED_SUFFIX)
    return retired


def swap_files(disk: Disk, directory: str, old: Sequence[Segment], bases: Sequence[int], *, may_have_gaps: bool = True) -> list[str]:
    """Replaces the segments `old` by the `.cleaned` files of the segments at `bases`. Returns the paths of the old files and of outdated
    `.compacted` files, which the caller removes later.

    The caller syncs the directory once more before the next replacement in this log; it need not wait for that sync. `may_have_gaps`: the
    new files may end before the next segment, so the `.compacted` file is written first. A base without a `.txnindex.cleaned` has no
    aborted transactions; indexes that compaction did not write are rebuilt on first use.
    """
    outdated = _note_compacted(disk, directory, old[-1].end_offset) if may_have_gaps else []
    stems = [f"{directory}/{base:020d}{suffix}" for base in bases for suffix in SEGMENT_SUFFIXES]
    stems = [stem for stem in stems if disk.exists(stem + CLEANED_SUFFIX)]
    for stem in reversed(stems):  # the first segment's log file last: while it is `.cleaned`, recovery drops the replacement
        disk.rename(stem + CLEANED_SUFFIX, stem + SWAP_SUFFIX)
    disk.sync_directory(directory)
    retired = [path for segment in old for path in retire_files(disk, segment)]
    disk.sync_directory(directory)
    for stem in stems:
        disk.rename(stem + SWAP_SUFFIX, stem)
    return retired + outdated


def _note_compacted(disk: Disk, directory: str, end_offset: int) -> list[str]:
    """Creates the file whose name says how far the log is compacted, unless a file names this or a later offset. Returns the files with
    lower offsets, to be removed later."""
    ends = compacted_ends(disk.listdir(directory))
    if not ends or end_offset > ends[-1]:
        disk.open(f"{directory}/{end_offset:020d}{COMPACTED_SUFFIX}", create=True).close()
    return [f"{directory}/{end:020d}{COMPACTED_SUFFIX}" for end in ends if end < end_offset]


def compacted_ends(names: Iterable[str]) -> list[int]:
    """Returns the end offsets in the names of `.compacted` files, in ascending order."""
    return sorted(offset for name in names if (offset := offset_of(name, COMPACTED_SUFFIX)) is not None)


def offset_of(name: str, suffix: str) -> int | None:
    """Returns the offset in a file's name, None if the name is not `%020d` and the suffix."""
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == _NAME_DIGITS and stem.isascii() and stem.isdigit() else None


def deleted_directory(disk: Disk, directory: str, topic_id: bytes, ending: str = _DELETE_SUFFIX) -> str:
    """Returns an unused name of Kafka's form `<topic>-<partition>.<unique>-delete` beside the directory, cut to what file systems allow."""
    parent, _, name = directory.rpartition("/")
    number = 0
    while True:
        suffix = f".{topic_id.hex()}{number or ''}{ending}"
        target = f"{parent}/{name[: _NAME_MAX - len(suffix)]}{suffix}"
        if not disk.exists(target):
            return target
        number += 1


def future_directory(name: str, unique: bytes) -> str | None:
    """Returns Kafka's name for the directory of a copy of the log `name`; None if it is too long for file systems."""
    made = f"{name}.{unique.hex()}{FUTURE_SUFFIX}"
    return made if len(made) <= _NAME_MAX else None


def name_of_future(name: str) -> str | None:
    """Returns the name of the log that a `-future` directory copies; None for other names."""
    stem = name.removesuffix(FUTURE_SUFFIX)
    copied, dot, unique = stem.rpartition(".")
    return copied if stem != name and dot and len(unique) == _UNIQUE_DIGITS else None
