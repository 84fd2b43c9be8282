"""Transfers the encoded batches of a task to the driver: in a file if both see the same file system, else inside the commit message.
`staging.py` uploads output to the brokers instead.

The driver makes a directory with a random token in it and sends its name to the tasks. A task that finds the token writes its batches into
a file there and sends the path; other tasks send the bytes. A task on another host cannot be mistaken for one on this host.

The message always has an index: partition, size, row count and CRC-32C of every batch. Reading checks each batch against it, so a lost,
truncated or foreign file raises `SpoolError` and is never sent as output. Files are read batch by batch, so memory does not grow with the
output. They are not synced, because an uncommitted batch is run again after a crash of the host.

A directory is removed when its batch ends (`discard`), together with the directories of failed attempts of the same query. Its name
contains the id of the process that owns the driver's Python workers. `Spool.create` also removes the directories of killed drivers on the
host, all directories that are a day old, and the files of `source_groups.py` of that age.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, NamedTuple

from ottla.client import StagedChunk, TopicPartition
from ottla.spark.errors import OutputError, SpoolError
from ottla.spark.local_files import is_alive
from ottla.spark.output_digest import DigestPart
from ottla.wire.batch_header import BATCH_OVERHEAD, CRC_AT, Buffer, check_crc

OUTPUT_OPTION = "maxOutputBytes"
MESSAGES_BYTES_MAX = 512 * 1024 * 1024
"""Maximum output of a batch in commit messages. Spark itself stops at `spark.driver.maxResultSize`, 1 GiB."""

FILES_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Maximum output of a batch in files. It is sent within one transaction, whose time is limited."""

STALE_S = 24 * 3600.0
WRITE_BUFFER_BYTES = 64 * 1024
"""Small batches are joined; a large one is written directly, without a copy into the buffer."""

_TOKEN = "token"
NOTE_SUFFIX = ".source"
"""Suffix of files that are removed when they are old, whichever process wrote them."""

_ANY = "batch"
"""The prefix of the directories of batch writes, which are independent of each other. A query's prefix is its key."""

_OWN_DIRECTORY = re.compile(r"(?:batch|[0-9a-f]{24})-([0-9]{1,9})-\w+")
_OWN_NOTE = re.compile(r"[0-9a-f]{24}\.[0-9a-f]{16}\.source|\.[0-9a-f]{24}\.(?:[0-9a-f]{16}\.source|range)-\w+")
"""The names that `_sweep` removes: directories of `Spool.create`, files of `source_groups.py`, and temporary files of killed processes.

The `.range` files of `batch_range.py` are kept, because a query with a checkpoint in an object store may need its file at any later time.
"""

_ENTRY = Struct(">IIII")
_CRC = Struct(">I")


class SpooledBatch(NamedTuple):
    """An encoded batch, without producer id, epoch and sequence number."""

    partition: TopicPartition
    data: bytearray
    rows: int


class StagedPart(NamedTuple):
    partition: TopicPartition
    chunks: tuple[StagedChunk, ...]
    digest: DigestPart


class StagedOutput(NamedTuple):
    token: bytes
    parts: tuple[StagedPart, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """A task's output in its commit message: `path` is a file, or `data` has the batches, and `index` describes them.

    `staged` is the manifest of further batches, which are on the brokers (`staging.py`). `rows` and `size_bytes` count all batches.
    """

    task: str
    partitions: tuple[TopicPartition, ...]
    index: bytes
    rows: int
    size_bytes: int
    path: str | None = None
    data: tuple[bytes, ...] = ()
    staged: StagedOutput | None = None

    @property
    def message_bytes(self) -> int:
        if self.path is not None:
            return 0
        return self.size_bytes - (self.staged.size_bytes if self.staged is not None else 0)

    @property
    def targets(self) -> set[TopicPartition]:
        return {*self.partitions, *(part.partition for part in (self.staged.parts if self.staged is not None else ()))}

    def batches(self) -> Iterator[SpooledBatch]:
        """Yields each batch that is not staged, in the order of writing, checked; a file is read lazily. Raises `SpoolError`."""
        pieces = iter(self.data) if self.path is None else _pieces(self.path, self.index)
        for lane, size, count, crc in _ENTRY.iter_unpack(self.index):
            piece = next(pieces, b"")
            if len(piece) != size or size < BATCH_OVERHEAD or _CRC.unpack_from(piece, CRC_AT)[0] != crc or not check_crc(piece, 0, size):
                raise SpoolError(f"the output of task {self.task} is damaged: {self.path or 'its commit message'}")
            yield SpooledBatch(self.partitions[lane], piece if isinstance(piece, bytearray) else bytearray(piece), count)


def _pieces(path: str, index: bytes) -> Iterator[bytearray]:
    try:
        with open(path, "rb", buffering=0) as file:
            for _, size, _, _ in _ENTRY.iter_unpack(index):
                piece = bytearray(size)
                yield piece if file.readinto(piece) == size else bytearray()
    except OSError as error:
        raise SpoolError(f"a task's output cannot be read: {path}: {(error.strerror or str(error)).lower()}") from None


class Spool(NamedTuple):
    """A directory for the output of one batch, made by the driver and sent to the tasks."""

    directory: str
    token: str

    @classmethod
    def create(cls, key: str | None, *, owner: int | None = None) -> Spool:
        """Makes a directory. `key` (the checkpoint) identifies the query; None means a batch write.

        A later call removes the directory when the process `owner` has ended. By default `owner` is the parent of this process, because the
        driver runs several Python processes and the calling one may end before the batch.
        """
        root = spool_root()
        _sweep(root)
        name = _ANY if key is None else hashlib.sha256(key.encode()).hexdigest()[:24]
        prefix = f"{name}-{os.getppid() if owner is None else owner}-"
        spool = cls(tempfile.mkdtemp(prefix=prefix, dir=root), secrets.token_hex(16))
        with open(Path(spool.directory, _TOKEN), "x", opener=_private) as file:
            file.write(spool.token)
        return spool

    def is_here(self) -> bool:
        """Whether this process can reach the driver's directory."""
        try:
            return Path(self.directory, _TOKEN).read_text() == self.token and os.access(self.directory, os.W_OK)
        except OSError:
            return False

    def open(self, task: str, bytes_max: int | None = None) -> SpoolWriter:
        """Returns a writer for one task attempt. `bytes_max` overrides the limits of its output."""
        return SpoolWriter(task, self.directory if self.is_here() else None, bytes_max)

    def discard(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class SpoolWriter:
    """Writes the batches of one task attempt; `finish` returns the output. Without `finish`, the end of `with` removes the file."""

    def __init__(self, task: str, directory: str | None, bytes_max: int | None = None) -> None:
        self.task = task
        self.rows = self.size_bytes = 0
        self._lanes: dict[TopicPartition, int] = {}
        self._index = bytearray()
        self._data: list[bytes] = []
        self._file: BinaryIO | None = None
        self._path: str | None = None
        self._bytes_max = output_bytes_max(directory is not None) if bytes_max is None else bytes_max
        if directory is not None:
            self._path = os.path.join(directory, f"{task}-{secrets.token_hex(8)}")
            try:
                self._file = open(  # noqa: SIM115  closed by finish or the end of with
                    self._path, "xb", buffering=WRITE_BUFFER_BYTES, opener=_private
                )
            except OSError as error:
                raise self._refused(error) from None

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        file, self._file = self._file, None
        if file is not None and self._path is not None:
            Path(self._path).unlink(missing_ok=True)
            try:
                file.close()
            except OSError:
                pass  # the disk is full, and the file is removed anyway

    def append(self, partition: TopicPartition, data: Buffer, count: int) -> None:
        """Adds an encoded batch of `count` rows. Raises `OutputError` above the limit, `SpoolError` if the disk fails."""
        self.size_bytes += len(data)
        if self.size_bytes > self._bytes_max:
            raise too_large(self.size_bytes, self._bytes_max)
        self.rows += count
        lane = self._lanes.setdefault(partition, len(self._lanes))
        self._index += _ENTRY.pack(lane, len(data), count, _CRC.unpack_from(data, CRC_AT)[0])
        if self._file is None:
            self._data.append(bytes(data))
            return
        try:
            self._file.write(data)
        except OSError as error:
            raise self._refused(error) from None

    def finish(self) -> TaskOutput:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                raise self._refused(error) from None
            self._file = None
        data, self._data = tuple(self._data), []
        return TaskOutput(self.task, tuple(self._lanes), bytes(self._index), self.rows, self.size_bytes, self._path, data)

    def _refused(self, error: OSError) -> SpoolError:
        return SpoolError(f"a task's output cannot be written: {self._path}: {(error.strerror or str(error)).lower()}")


def output_bytes_max(is_in_files: bool) -> int:
    return FILES_BYTES_MAX if is_in_files else MESSAGES_BYTES_MAX


def too_large(size_bytes: int, bytes_max: int) -> OutputError:
    return OutputError(
        f"{OUTPUT_OPTION}={bytes_max}: the output of this batch is larger, {size_bytes} bytes or more; raise the option, and "
        "spark.driver.maxResultSize if tasks send their output in messages. maxOffsetsPerTrigger makes later batches smaller, but not one "
        "that is planned in the checkpoint: a restart runs it again as it is"
    )


def discard(outputs: Iterable[TaskOutput | None]) -> None:
    """Removes the directories of these outputs and of the query's earlier attempts in this driver, after commit or abort."""
    for directory in {Path(output.path).parent for output in outputs if output is not None and output.path is not None}:
        if not (directory / _TOKEN).exists():
            continue
        name, owner, _ = directory.name.split("-", 2)
        siblings = [directory] if name == _ANY else directory.parent.glob(f"{name}-{owner}-*")
        for sibling in siblings:
            shutil.rmtree(sibling, ignore_errors=True)


def _private(path: str, flags: int) -> int:
    """Opens a file that only this user may read, whatever the umask."""
    return os.open(path, flags, 0o600)


def spool_root() -> Path:
    """Returns the directory of all spools of this user on this host; creates it with access for this user only.

    Every local user may write to the temporary directory. Only a real directory of this user is used, because with a symbolic link the
    sweep could delete other directories.
    """
    root = Path(tempfile.gettempdir()) / f"ottla-spool-{os.getuid()}"
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        pass
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"{root} is not a directory (it may be another user's symbolic link); remove it, or set TMPDIR")
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SpoolError(f"{root} belongs to another user or is open to others; remove it, or set TMPDIR")
    return root


def _sweep(root: Path) -> None:
    """Removes old files, old directories and directories of dead drivers. Entries with other names than this package's are kept."""
    oldest = time.time() - STALE_S
    for found in root.iterdir():
        try:
            is_old = found.lstat().st_mtime < oldest
            owner = _OWN_DIRECTORY.fullmatch(found.name)
            if owner is not None and (is_old or not is_alive(int(owner[1]))):
                shutil.rmtree(found, ignore_errors=True)
            elif is_old and _OWN_NOTE.fullmatch(found.name):
                found.unlink()
        except OSError:
            continue  # another driver's sweep has removed it
