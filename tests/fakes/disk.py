"""A disk in memory that fails on demand and loses unsynced bytes.

Content is byte-exact. A written byte survives `crash()` only if its file was synced after the write *and* the name of the file was made
durable by `sync_directory` of its directory. The same is true for each directory up to the root, for renames and for removals. Given a
source of randomness, a crash keeps an arbitrary possible part of the rest: some of the unsynced writes, one of them torn. `image()` returns
a copy of the disk as it would be after a power loss at this moment, and does not change this disk. With `on_change` a test can take such an
image after every change. A failed sync loses its writes permanently, as on Linux: the same handle fails again; a new handle succeeds, but
the writes stay lost. Directories given to the constructor exist durably; `/` always does. Files opened before a crash must not be used
after it.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.base.errors import DamagedLogError, DiskError, StorageError
from ottla.base.ports import Random

CELL_BYTES = 8
_OPERATIONS = frozenset({
    "open", "read", "write", "truncate", "sync", "list", "makedirs", "rename", "remove", "sync_directory", "sync_file_systems"
})  # fmt: skip


@dataclass
class _Content:
    """A file's bytes: as they are read now, as they are certainly after a crash, and the changes between the two (a change without data is
    a truncation to the position). The numbers of a file that is mapped (`map_cells`) change without an entry.
    """

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    is_mapped: bool = False


@dataclass
class _NameChange:
    """One change of a directory's names, which is kept or lost as a whole. `old` is the name that is removed, `new` the name that is added;
    a rename has both, a creation or a removal has one.
    """

    moved: _Content | _Directory
    old: str | None
    new: str | None


@dataclass
class _Directory:
    """A directory's names: as they are now, as they are certainly after a crash, and the changes between the two."""

    names: dict[str, _Content | _Directory] = field(default_factory=dict)
    durable: dict[str, _Content | _Directory] = field(default_factory=dict)
    unsynced: list[_NameChange] = field(default_factory=list)

    def change(self, moved: _Content | _Directory, *, old: str | None = None, new: str | None = None) -> None:
        if old is not None:
            del self.names[old]
        if new is not None:
            self.names[new] = moved
        self.unsynced.append(_NameChange(moved, old, new))

    def set_durably(self, name: str, found: _Content | _Directory | None) -> None:
        """Sets or removes a name durably; unsynced changes of this name have no effect any more."""
        self.unsynced = [change for change in self.unsynced if name not in (change.old, change.new)]
        for names in (self.names, self.durable):
            names.pop(name, None)
            if found is not None:
                names[name] = found

    def make_durable(self) -> None:
        self.durable = dict(self.names)
        self.unsynced.clear()

    def surviving_names(self, random: Random | None) -> dict[str, _Content | _Directory]:
        names = dict(self.durable)
        if random is None:
            return names
        for change in self.unsynced:
            if change.old is not None and names.get(change.old) is not change.moved:
                continue
            if not random.randrange(2):
                continue
            if change.old is not None:
                del names[change.old]
            if change.new is not None:
                names[change.new] = change.moved
        return names


class Copied(dict[str, "Copied | bytes"]):
    """A copy of a directory: its names, with copies of directories or the bytes of files."""

    def directory(self, name: str) -> Copied | None:
        found = self.get(name)
        return found if isinstance(found, Copied) else None


@dataclass
class _Fault:
    operation: str
    number: int
    after: int
    count: int | None
    path_part: str
    written_bytes: int


def _change(data: bytearray, position: int, piece: bytes | memoryview | None) -> None:
    """Applies one write or truncation. A write past the end fills the gap with zeros."""
    if piece is None:
        del data[position:]
        position, piece = len(data), bytes(position - len(data))
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(piece)] = piece


class MemFile:
    """`ports.File` on a `MemDisk`."""

    def __init__(self, disk: MemDisk, path: str, content: _Content) -> None:
        self.path = path
        self._disk = disk
        self._content = content
        self._life = disk.crashes
        self._is_open = True
        self._sync_failed = False

    def fileno(self) -> int:
        return -1

    def _check_usable(self) -> None:
        assert self._is_open, f"{self.path} is closed"
        assert self._life == self._disk.crashes, f"{self.path} was opened before the crash"

    def size(self) -> int:
        self._check_usable()
        return len(self._content.data)

    def pread(self, length: int, position: int) -> bytes:
        self._check_usable()
        assert length >= 0 and position >= 0, f"read of {length} bytes at {position} of {self.path}"
        self._disk.maybe_fail("read", self.path)
        return bytes(memoryview(self._content.data)[position : position + length])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        piece = self.pread(len(buffer), position)
        buffer[: len(piece)] = piece
        return len(piece)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._check_usable()
        assert position >= 0, f"write at {position} of {self.path}"
        piece = bytes(data)
        fault = self._disk.take_fault("write", self.path)
        room = self._disk.room_bytes() + max(0, len(self._content.data) - position)
        if fault is not None:
            self._write(piece[: fault.written_bytes], position)
            raise self._disk.failure("write", self.path, fault.number)
        self._write(piece[:room], position)
        if room < len(piece):
            raise self._disk.failure("write", self.path, errno.ENOSPC)

    def _write(self, piece: bytes, position: int) -> None:
        if piece:
            self._disk.used_bytes += max(0, position + len(piece) - len(self._content.data))
            _change(self._content.data, position, piece)
            self._content.unsynced.append((position, piece))
            self._disk.changed("write", self.path)

    def truncate(self, size: int) -> None:
        self._check_usable()
        self._disk.maybe_fail("truncate", self.path)
        self._disk.used_bytes += size - len(self._content.data)
        _change(self._content.data, size, None)
        self._content.unsynced.append((size, None))
        self._disk.changed("truncate", self.path)

    def sync(self) -> None:
        self._check_usable()
        fault = self._disk.take_fault("sync", self.path)
        if fault is not None:
            self._sync_failed = True
            self._content.unsynced.clear()
            raise self._disk.failure("sync", self.path, fault.number)
        if self._sync_failed:
            raise DiskError(f"cannot sync {self.path}: an earlier sync failed", self.path)
        for position, piece in self._content.unsynced:
            _change(self._content.durable, position, piece)
        self._content.unsynced.clear()
        if self._content.is_mapped:
            self._content.durable[:] = self._content.data
        self._disk.changed("sync", self.path)

    def close(self) -> None:
        self._is_open = False


class MemDisk:
    """`ports.Disk` in memory."""

    def __init__(self, *directories: str, capacity_bytes: int = 1 << 40) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.crashes = 0
        self.are_failures_reported = True  # by `sync_file_systems`
        self.counts: dict[str, int] = {}  # changes so far by operation: "write", "sync" ...
        self.on_change: Callable[[str, str], object] | None = None  # called after each change with operation and path
        self._root = _Directory()
        self._faults: list[_Fault] = []
        for directory in directories:
            self._make(directory, is_durable=True)

    # Faults

    def fail_next(
        self,
        operation: str,
        number: int = errno.EIO,
        *,
        after: int = 0,
        count: int | None = 1,
        path_part: str = "",
        written_bytes: int = 0,
    ) -> None:
        """Makes `operation` on paths that contain `path_part` fail with `number` (EIO, ENOSPC) `count` times (`None`: until `heal`). The
        first `after` operations succeed. A failing write still writes its first `written_bytes`.
        """
        assert operation in _OPERATIONS, f"no such operation: {operation}"
        self._faults.append(_Fault(operation, number, after, count, path_part, written_bytes))

    def heal(self) -> None:
        """Removes all faults."""
        self._faults.clear()

    def flip_bits(self, path: str, position: int, mask: int = 0xFF) -> None:
        """Changes one byte durably (bit rot)."""
        content = self._content(path)
        content.data[position] ^= mask
        if position < len(content.durable):
            content.durable[position] = content.data[position]

    def lose(self, path: str) -> None:
        """Removes a file or directory durably."""
        parent, name = self._parent(path)
        assert parent is not None, f"no directory of {path}"
        parent.set_durably(name, None)
        self.used_bytes = _size(self._root)

    def copy_of(self, path: str) -> Copied:
        """Returns a copy of a directory's contents, to be put back later."""
        return _copied(self._directory("copy", path))

    def put_back(self, path: str, copy: Copied | None) -> bool:
        """Replaces a directory durably by a copy, like a restored backup. Returns whether there was a copy."""
        parent, name = self._parent(path)
        if copy is None or parent is None:
            return False
        parent.set_durably(name, _restored(copy))
        self.used_bytes = _size(self._root)
        return True

    def crash(self, random: Random | None = None) -> None:
        """Simulates a power loss: keeps the certain contents, and with `random` an arbitrary possible part of the rest."""
        self._root = self.image(random)._root
        self.used_bytes = _size(self._root)
        self.crashes += 1
        self._faults.clear()

    def image(self, random: Random | None = None) -> MemDisk:
        """Returns a new disk with the contents after a power loss now."""
        other = MemDisk(capacity_bytes=self.capacity_bytes)
        other._root = _survivors(self._root, random, {})
        other.used_bytes = _size(other._root)
        return other

    def write_back(self) -> None:
        """Makes everything that was written durable, like `sync` of the whole system."""
        _make_durable(self._root)

    # Access for tests: without faults and handles

    def read_file(self, path: str) -> bytes:
        return bytes(self._content(path).data)

    def durable_file(self, path: str) -> bytes:
        """Returns the contents of a file that are certain after a crash; None if its name is not certain."""
        return bytes(self._content(path).durable)

    def certain_size(self, path: str) -> int:
        """Returns how many of a file's first bytes a power failure now would certainly keep; 0 if its name may be lost."""
        found: _Content | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            found = found.durable.get(name) if isinstance(found, _Directory) else None
        if not isinstance(found, _Content):
            return 0
        return min([len(found.durable), len(found.data), *(position for position, _ in found.unsynced)])

    def write_file(self, path: str, data: bytes) -> None:
        """Writes a file durably, with its name and its directories."""
        parent = self._make(posixpath.dirname(path), is_durable=True)
        parent.set_durably(posixpath.basename(path), _Content(bytearray(data), bytearray(data)))
        self.used_bytes = _size(self._root)

    def all_files(self) -> dict[str, bytes]:
        """Returns every path and its bytes, sorted by path."""
        return dict(sorted(_walk(self._root, "")))

    # ports.Disk

    def open(self, path: str, *, create: bool = False) -> MemFile:
        self.maybe_fail("open", path)
        parent, name = self._parent(path)
        found = parent.names.get(name) if parent is not None else None
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if parent is None:
                raise self.failure("open", path, errno.ENOENT)
            found = _Content()
            parent.change(found, new=name)
            self.changed("open", path)
        if isinstance(found, _Directory):
            raise self.failure("open", path, errno.EISDIR)
        return MemFile(self, path, found)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def listdir(self, path: str) -> list[str]:
        self.maybe_fail("list", path)
        return sorted(self._directory("list", path).names)

    def makedirs(self, path: str) -> None:
        self.maybe_fail("makedirs", path)
        self._make(path, is_durable=False)
        self.changed("makedirs", path)

    def rename(self, old: str, new: str) -> None:
        self.maybe_fail("rename", old)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if source is None or target is None or old_name not in source.names:
            raise self.failure("rename", old, errno.ENOENT)
        replaced = target.names.get(new_name)
        if isinstance(replaced, _Directory) and replaced.names:
            raise self.failure("rename", new, errno.ENOTEMPTY)
        moved = source.names[old_name]
        if replaced is not None and replaced is not moved:
            self.used_bytes -= _size(replaced)
        if source is target:
            source.change(moved, old=old_name, new=new_name)
        else:
            target.change(moved, new=new_name)
            source.change(moved, old=old_name)
        self.changed("rename", new)

    def remove(self, path: str) -> None:
        self.maybe_fail("remove", path)
        found = self._find(path)
        if isinstance(found, _Directory):
            raise self.failure("remove", path, errno.EISDIR)
        self._drop(path)

    def remove_tree(self, path: str) -> None:
        self.maybe_fail("remove", path)
        self._drop(path)

    def sync_directory(self, path: str) -> None:
        self.maybe_fail("sync_directory", path)
        directory = self._directory("sync_directory", path)
        directory.make_durable()
        self.changed("sync_directory", path)

    def sync_file_systems(self, paths: Iterable[str]) -> bool:
        for path in paths:
            self.maybe_fail("sync_file_systems", path)
        self.write_back()
        self.changed("sync_file_systems", "/")
        return self.are_failures_reported

    def map_cells(self, path: str) -> memoryview:
        self.maybe_fail("open", path)
        content = self._content(path)
        content.is_mapped = True
        try:
            return memoryview(content.data).cast("q")
        except TypeError as error:
            raise DiskError(f"cannot map {path}: {error}", path) from error

    def free_bytes(self, path: str) -> tuple[int, int]:
        self._directory("look at", path)
        return self.capacity_bytes, self.room_bytes()

    # For MemFile

    def room_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.used_bytes)

    def take_fault(self, operation: str, path: str) -> _Fault | None:
        """Returns the fault for this call, if one is due. Counts down the matching faults that are not due yet."""
        for fault in self._faults:
            if fault.operation != operation or fault.path_part not in path:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            if fault.count is not None:
                fault.count -= 1
                if fault.count <= 0:
                    self._faults.remove(fault)
            return fault
        return None

    def maybe_fail(self, operation: str, path: str) -> None:
        fault = self.take_fault(operation, path)
        if fault is not None:
            raise self.failure(operation, path, fault.number)

    def failure(self, operation: str, path: str, number: int) -> StorageError:
        """Returns the error that `OsDisk` would raise: unreadable bytes are a `DamagedLogError`."""
        is_damage = operation == "read" and number == errno.EIO
        return (DamagedLogError if is_damage else DiskError)(f"cannot {operation} {path}: {os.strerror(number)}", path)

    def changed(self, operation: str, path: str) -> None:
        self.counts[operation] = self.counts.get(operation, 0) + 1
        if self.on_change is not None:
            self.on_change(operation, path)

    # Paths

    def _find(self, path: str) -> _Content | _Directory | None:
        assert path.startswith("/"), f"not an absolute path: {path}"
        found: _Content | _Directory | None = self._root
        for name in posixpath.normpath(path).strip("/").split("/"):
            if name:
                found = found.names.get(name) if isinstance(found, _Directory) else None
        return found

    def _parent(self, path: str) -> tuple[_Directory | None, str]:
        head, name = posixpath.split(posixpath.normpath(path))
        found = self._find(head)
        return (found if isinstance(found, _Directory) else None), name

    def _content(self, path: str) -> _Content:
        found = self._find(path)
        assert isinstance(found, _Content), f"no file {path}"
        return found

    def _directory(self, operation: str, path: str) -> _Directory:
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise self.failure(operation, path, errno.ENOENT if found is None else errno.ENOTDIR)
        return found

    def _make(self, path: str, *, is_durable: bool) -> _Directory:
        directory = self._root
        for name in posixpath.normpath(path).strip("/").split("/"):
            if not name:
                continue
            found = directory.names.get(name)
            if found is None:
                found = _Directory()
                directory.change(found, new=name)
            if not isinstance(found, _Directory):
                raise self.failure("makedirs", path, errno.ENOTDIR)
            if is_durable:
                directory.set_durably(name, found)
            directory = found
        return directory

    def _drop(self, path: str) -> None:
        parent, name = self._parent(path)
        dropped = parent.names.get(name) if parent is not None else None
        if parent is not None and dropped is not None:
            parent.change(dropped, old=name)
            self.used_bytes -= _size(dropped)
            self.changed("remove", path)


def _copied(directory: _Directory) -> Copied:
    return Copied({name: _copied(found) if isinstance(found, _Directory) else bytes(found.data) for name, found in directory.names.items()})


def _restored(copy: Copied) -> _Directory:
    names: dict[str, _Content | _Directory] = {}
    for name, found in copy.items():
        names[name] = _restored(found) if isinstance(found, Copied) else _Content(bytearray(found), bytearray(found))
    return _Directory(names, dict(names))


def _size(found: _Content | _Directory) -> int:
    return sum(map(_size, found.names.values())) if isinstance(found, _Directory) else len(found.data)


def _walk(directory: _Directory, path: str) -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for name, found in directory.names.items():
        if isinstance(found, _Directory):
            files += _walk(found, f"{path}/{name}")
        else:
            files.append((f"{path}/{name}", bytes(found.data)))
    return files


def _make_durable(directory: _Directory) -> None:
    directory.make_durable()
    for found in directory.names.values():
        if isinstance(found, _Directory):
            _make_durable(found)
        else:
            found.durable[:] = found.data
            found.unsynced.clear()


def _survivors(directory: _Directory, random: Random | None, done: dict[int, _Content]) -> _Directory:
    """Returns a copy of the contents that survive a crash. `done` makes sure that a file with two names (an unsynced rename) stays one
    file.
    """
    names: dict[str, _Content | _Directory] = {}
    for name, found in directory.surviving_names(random).items():
        if isinstance(found, _Directory):
            names[name] = _survivors(found, random, done)
        else:
            if id(found) not in done:
                data = _surviving_bytes(found, random)
                done[id(found)] = _Content(data, bytearray(data))
            names[name] = done[id(found)]
    return _Directory(names, dict(names))


def _surviving_bytes(content: _Content, random: Random | None) -> bytearray:
    data = bytearray(content.durable)
    if random is None:
        return data
    for position, piece in content.unsynced:
        fate = random.randrange(3)  # 0: lost, 1: kept, 2: torn
        if fate == 1 or (fate == 2 and piece is None):
            _change(data, position, piece)
        elif fate == 2 and piece is not None:
            _change(data, position, piece[: random.randrange(len(piece) + 1)])
    if content.is_mapped:
        _mix_cells(data, content.data, random)
    return data


def _mix_cells(data: bytearray, newest: bytearray, random: Random) -> None:
    """After a crash each changed number of a mapped file has either its new or its old value."""
    for at in range(0, min(len(data), len(newest)), CELL_BYTES):
        if data[at : at + CELL_BYTES] != newest[at : at + CELL_BYTES] and random.randrange(2):
            data[at : at + CELL_BYTES] = newest[at : at + CELL_BYTES]
