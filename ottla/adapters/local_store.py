"""The metadata store of a single broker: the node tree in memory, every lasting node in an SQLite file beside the logs.

`multi` stages the operations, writes what they leave behind in one SQLite transaction (WAL, synchronous=FULL: on the disk when the call
returns), and only then changes the tree and answers; a kill at any point leaves all of a multi or nothing. Answers come before the
methods return, so the caller's loop stands still for the write: 0.6 ms for a small change on a disk that syncs in 0.13 ms. Metadata
changes seldom, and nothing may be answered before its change is on the disk anyway. Only a multi of thousands of nodes is done in turns of
the loop; what is asked for meanwhile waits behind it.

Ephemeral nodes live in memory only, so they are gone after a restart, as a ZooKeeper session's would be. A `czxid` must never repeat
although those nodes leave no trace: its upper half is the number of the opening, written with the first multi, its lower half counts
multis.

A file that is not a healthy store raises `StorageError` with one line; nothing is repaired or overwritten. Left out: sessions of others,
ACLs.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from ottla.adapters.node_tree import Growth, NodeTree, Staged
from ottla.base.errors import StorageError
from ottla.base.ports import Node, Operation, StoreResult
from ottla.base.turns import Turns

log = logging.getLogger("ottla.metadata")

FILE_NAME = "ottla-metadata.sqlite"
SCHEMA_VERSION = 1
CZXIDS_PER_OPENING_BITS = 32
OPERATIONS_AT_ONCE_MAX = 2048
PIECE_OPERATIONS = 1024
DELETE = "DELETE FROM node WHERE path = ?"
PUT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?)"
Row = tuple[object, ...]
SCHEMA = """
CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opening (number INTEGER NOT NULL);
"""


class LocalStore:
    """`ports.MetadataStore` in one SQLite file, opened by one process at a time (the data directory's lock sees to that)."""

    def __init__(self, path: str, turns: Turns | None = None) -> None:
        self.path = path
        self.is_closed = False
        self._turns = turns
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        try:
            nodes, opening = self._open()
        except sqlite3.Error as error:
            self._database.close()
            raise self._unreadable(error) from None
        except StorageError:
            self._database.close()
            raise
        self._opening = opening + 1
        self._is_opening_saved = False
        self._multis = 0
        self._tree = NodeTree(nodes)

    def get(self, path: str, done: Callable[[Node | None], None], *, watch: Callable[[], None] | None = None) -> None:
        if watch is not None:
            self._tree.watch_node(path, watch)
        done(self._tree.get(path))

    def children(self, path: str, done: Callable[[list[str]], None], *, watch: Callable[[], None] | None = None) -> None:
        if watch is not None:
            self._tree.watch_children(path, watch)
        done(self._tree.children(path))

    def multi(self, operations: Sequence[Operation], done: Callable[[StoreResult, int], None]) -> None:
        if self.is_closed:
            done(StoreResult.SESSION_EXPIRED, 0)
            return
        if self._turns is not None and (len(operations) > OPERATIONS_AT_ONCE_MAX or not self._turns.is_idle):
            self._turns.add(self._multi_in_turns(operations, done))
            return
        czxid = self._next_czxid()
        staged, result, index = self._tree.stage(operations, czxid=czxid, session_id=self._opening)
        if result is StoreResult.OK and staged:
            self._save(staged)
            self._multis += 1
            self._tree.commit(staged)
        done(result, index)

    def _next_czxid(self) -> int:
        return (self._opening << CZXIDS_PER_OPENING_BITS) + self._multis + 1

    def _multi_in_turns(self, operations: Sequence[Operation], done: Callable[[StoreResult, int], None]) -> Iterator[None]:
        staged, growth, czxid = Staged(), Growth(), self._next_czxid()
        for start in range(0, len(operations), PIECE_OPERATIONS):
            piece = operations[start : start + PIECE_OPERATIONS]
            result, index = self._tree.stage_more(piece, staged, growth, czxid=czxid, session_id=self._opening)
            if result is not StoreResult.OK:
                done(result, start + index)
                return
            yield
            if self.is_closed:
                done(StoreResult.SESSION_EXPIRED, 0)
                return
        try:
            for _ in self._save_in_pieces(staged):
                yield
                if self.is_closed:
                    done(StoreResult.SESSION_EXPIRED, 0)
                    return
        except StorageError as error:
            log.error("%s", error)
            done(StoreResult.UNKNOWN, -1)
            return
        self._multis += 1
        self._tree.commit(staged)
        yield
        done(StoreResult.OK, -1)

    def session_id(self) -> int:
        return self._opening

    def close(self) -> None:
        """Ends the session; the file is folded into one piece."""
        if not self.is_closed:
            self.is_closed = True
            self._database.close()

    def _unreadable(self, error: sqlite3.Error) -> StorageError:
        return StorageError(f"{self.path}: the metadata store cannot be read ({error}); restore the file from a copy")

    def _open(self) -> tuple[dict[str, Node], int]:
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        (schema_version,) = run("PRAGMA user_version").fetchone()
        if schema_version > SCHEMA_VERSION:
            raise StorageError(f"{self.path}: written by a newer version (schema {schema_version}, known is {SCHEMA_VERSION})")
        if schema_version < SCHEMA_VERSION:
            self._database.executescript(SCHEMA + f"PRAGMA user_version={SCHEMA_VERSION};")
        (verdict,) = run("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StorageError(f"{self.path}: the metadata store is damaged ({verdict}); restore the file from a copy")
        nodes = {}
        for path, data, version, czxid in run("SELECT path, data, version, czxid FROM node"):
            nodes[path] = Node(data=bytes(data), version=version, czxid=czxid)
        (opening,) = run("SELECT coalesce(max(number), 0) FROM opening").fetchone()
        return nodes, opening

    def _save(self, staged: Staged) -> None:
        """One transaction for the whole multi; raises `StorageError` with nothing changed."""
        for _ in self._save_in_pieces(staged):
            pass

    def _save_in_pieces(self, staged: Staged) -> Iterator[None]:
        """All is on the disk when this ends; between the pieces nothing is, and nobody else may write."""
        put: list[Row] = []
        gone: list[Row] = []
        for path, node in staged.items():
            if node is None:
                gone.append((path,))
            elif not node.ephemeral_owner:
                put.append((path, node.data, node.version, node.czxid))
        if not put and not gone and self._is_opening_saved:
            return
        run = self._database.execute
        try:
            run("BEGIN IMMEDIATE")
            if not self._is_opening_saved:
                run("DELETE FROM opening")
                run("INSERT INTO opening VALUES (?)", (self._opening,))
            for sql, rows in ((DELETE, gone), (PUT, put)):
                for start in range(0, len(rows), PIECE_OPERATIONS):
                    self._database.executemany(sql, rows[start : start + PIECE_OPERATIONS])
                    yield
            run("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                run("ROLLBACK")
            raise StorageError(f"{self.path}: the metadata store cannot be written ({error})") from None
        self._is_opening_saved = True
