"""`ottla log scrub`: reads files of logs, checks the CRCs of all batches, and shows which offsets are damaged.

A path is a segment, the directory of a partition, or a log directory with directories of partitions. The command writes nothing, so it may
run while the broker runs. If the broker is writing the last batch of a log at that moment, this batch looks damaged. Exit code 1 means that
there is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ottla.adapters.disk import OsDisk, OsFile
from ottla.base.errors import DiskError, StorageError
from ottla.cli.command import Args, Refused, UsageError, command, option
from ottla.cli.render.ottla import Output, Row
from ottla.storage.file_renames import compacted_ends, offset_of
from ottla.storage.scan import NEVER
from ottla.storage.segment import LOG_SUFFIX
from ottla.storage.segment_check import SegmentCheck
from ottla.storage.small_files import CLEANER_OFFSET_FILE

PIECE_BYTES = 16 << 20


class DamageRow(Row):
    file: str
    first_offset: int
    last_offset: int | None
    position: int
    reason: str


class ReadOnlyDisk(OsDisk):
    """Opens files for reading only."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        assert not create, f"{path} is only read"
        try:
            return OsFile(path, os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DiskError(f"cannot open {path}: {error.strerror or error}", path) from error


@command(
    "log scrub",
    "Check the CRCs of all batches, and show which offsets are damaged.",
    option("paths", nargs="*", metavar="PATH", help="log directories, directories of partitions, or segments"),
    has_connection=False,
)
def _run(args: Args, output: Output) -> int:
    if not args.paths:
        raise UsageError("name a directory: ottla log scrub ottla-data")
    disk = ReadOnlyDisk()
    rows: list[DamageRow] = []
    batches = segments = 0
    try:
        for check in (found for path in args.paths for found in _checks(disk, path)):
            while check.run(PIECE_BYTES):
                pass
            segments, batches = segments + 1, batches + check.batches
            for damaged in check.damaged:
                last = None if damaged.end_offset == NEVER else damaged.end_offset - 1
                reason = damaged.reason.removeprefix(f"{check.path}: ")
                rows.append(DamageRow(check.path, damaged.first_offset, last, damaged.position, reason))
    except StorageError as error:
        raise Refused(str(error), "KAFKA_STORAGE_ERROR") from None
    if rows or output.is_structured:
        output.rows("damage", DamageRow, rows, extra={"segments": segments, "batches": batches})
    output.note(f"{batches} batches in {segments} segments were checked, {len(rows)} places are damaged")
    return 1 if rows else 0


def _checks(disk: OsDisk, path: str) -> Iterator[SegmentCheck]:
    """Yields a check for each segment at a path."""
    if not os.path.isdir(path):
        parent, name = os.path.split(os.path.abspath(path))
        if offset_of(name, LOG_SUFFIX) is None or not os.path.exists(path):
            raise Refused(f"{path} is neither a directory nor a segment", "NO_SUCH_FILE")
        yield from _of_partition(disk, parent, name)
        return
    names = disk.listdir(path)
    if any(offset_of(name, LOG_SUFFIX) is not None for name in names):
        yield from _of_partition(disk, path)
        return
    partitions = [name for name in names if name.rpartition("-")[2].isdecimal() and os.path.isdir(os.path.join(path, name))]
    if not partitions:
        raise Refused(f"no log in {path}", "NO_SUCH_FILE")
    for name in partitions:
        yield from _of_partition(disk, os.path.join(path, name))


def _of_partition(disk: OsDisk, directory: str, only: str = "") -> Iterator[SegmentCheck]:
    names = disk.listdir(directory)
    bases = sorted(base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None)
    ends = compacted_ends(names)
    compacted_end = ends[-1] if ends else NEVER if _was_cleaned(directory) else 0
    for base, end in zip(bases, [*bases[1:], NEVER], strict=True):
        stem = os.path.join(directory, f"{base:020d}")
        if only in ("", f"{base:020d}{LOG_SUFFIX}"):
            size = os.path.getsize(stem + LOG_SUFFIX)
            yield SegmentCheck(disk, stem, base, end, size, may_end_early=end == NEVER or base < compacted_end)


def _was_cleaned(directory: str) -> bool:
    """Whether the partition's log was compacted: the log directory's cleaner checkpoint (the same file as Kafka's) then has the partition.
    """
    parent, name = os.path.split(os.path.abspath(directory))
    topic, _, number = name.rpartition("-")
    try:
        with open(os.path.join(parent, CLEANER_OFFSET_FILE), encoding="utf-8", errors="replace") as file:
            return any(line.startswith(f"{topic} {number} ") for line in file)
    except OSError:
        return False
