"""The file of the embedded metadata store: every persistent node in one SQLite database (WAL, synchronous=FULL).

`write_in_pieces` writes the nodes that a multi changes in one transaction, and `commit` ends the transaction. Only `commit` makes the
change durable, and only `commit` waits for the disk. It may be called in a thread; until it returns, only `close` may be called. A file
that is not a healthy store raises `StorageError` with one line. Nothing is repaired or overwritten.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

from ottla.adapters.node_tree import NodeTree, StagedNodes
from ottla.base.errors import StorageError
from ottla.base.ports import StoreNode

SCHEMA_VERSION = 1
ROWS_PER_PIECE = 1024
JournalRow = tuple[object, ...]
SCHEMA = """
CREATE TABLE IF NOT EXISTS node (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opening (number INTEGER NOT NULL);
"""
SEQUENCES = "CREATE TABLE IF NOT EXISTS sequence (path TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID"
STATEMENTS = (
    "DELETE FROM node WHERE path = ?",
    "DELETE FROM sequence WHERE path = ?",
    "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?)",
    "INSERT OR REPLACE INTO sequence VALUES (?, ?)",
)


class NodeJournal:
    """One file, opened by one process at a time (the data directory's lock prevents a second one)."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        try:
            self._prepare()
            self.opening = self._last_opening() + 1
        except sqlite3.Error as error:
            self._database.close()
            raise self._unreadable(error) from None
        except StorageError:
            self._database.close()
            raise
        self._is_opening_saved = False
        self.is_writing = False
        """Whether there is something to commit."""
        self._lock = Lock()
        """Held during a commit; `close` waits for it."""

    def load(self) -> NodeTree:
        run = self._database.execute
        nodes = {}
        try:
            for path, data, version, czxid in run("SELECT path, data, version, czxid FROM node"):
                nodes[path] = StoreNode(data=bytes(data), version=version, czxid=czxid)
            sequences = dict(run("SELECT path, next FROM sequence"))
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        return NodeTree(nodes, sequences)

    def write_in_pieces(self, staged: StagedNodes) -> Iterator[None]:
        """Writes one transaction in several steps. No other transaction may begin between the steps. `commit` must follow if `is_writing`.
        A multi without persistent nodes writes nothing, except the first one: it stores the number of this opening. After a `StorageError`
        the file is unchanged."""
        rows = _rows(staged)
        if not any(rows) and self._is_opening_saved:
            return
        run = self._database.execute
        try:
            if self._database.in_transaction:
                run("ROLLBACK")  # the rollback of an earlier transaction has failed
            run("BEGIN IMMEDIATE")
            self.is_writing = True
            if not self._is_opening_saved:
                run("DELETE FROM opening")
                run("INSERT INTO opening VALUES (?)", (self.opening,))
            for sql, of_statement in zip(STATEMENTS, rows, strict=True):
                for start in range(0, len(of_statement), ROWS_PER_PIECE):
                    self._database.executemany(sql, of_statement[start : start + ROWS_PER_PIECE])
                    yield
        except sqlite3.Error as error:
            raise self._undone(error) from None

    def commit(self) -> StorageError | None:
        """Ends the transaction. Returns None, or why it failed; then the file is unchanged."""
        with self._lock:
            self.is_writing = False
            try:
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                return self._undone(error)
            self._is_opening_saved = True
            return None

    def close(self) -> None:
        """Closes the database: SQLite rolls back an unfinished transaction and moves the write-ahead log into the database file."""
        with self._lock:
            self._database.close()

    def _undone(self, error: sqlite3.Error) -> StorageError:
        """Tries to roll back, and returns the error to report."""
        self.is_writing = False
        with suppress(sqlite3.Error):
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        return StorageError(f"{self.path}: the metadata store cannot be written ({error})", self.path)

    def _unreadable(self, error: sqlite3.Error) -> StorageError:
        return StorageError(f"{self.path}: the metadata store cannot be read ({error}); restore the file from a copy", self.path)

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        (schema_version,) = run("PRAGMA user_version").fetchone()
        if schema_version > SCHEMA_VERSION:
            raise StorageError(f"{self.path}: written by a newer version (schema {schema_version}, known is {SCHEMA_VERSION})")
        if schema_version < SCHEMA_VERSION:
            self._database.executescript(SCHEMA + f"PRAGMA user_version={SCHEMA_VERSION};")
        run(SEQUENCES)
        (verdict,) = run("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StorageError(f"{self.path}: the metadata store is damaged ({verdict}); restore the file from a copy", self.path)

    def _last_opening(self) -> int:
        (opening,) = self._database.execute("SELECT coalesce(max(number), 0) FROM opening").fetchone()
        return int(opening)


def _rows(staged: StagedNodes) -> tuple[list[JournalRow], list[JournalRow], list[JournalRow], list[JournalRow]]:
    """Returns the rows of each statement in `STATEMENTS`. Ephemeral nodes are not stored."""
    gone: list[JournalRow] = []
    put: list[JournalRow] = []
    for path, node in staged.nodes.items():
        if node is not None and not node.ephemeral_owner:
            put.append((path, node.data, node.version, node.czxid))
        elif node is None or path in staged.deleted:
            gone.append((path,))
    return gone, gone, put, list(staged.sequences.items())
