"""The tree of nodes with its file: each change is in the file before it is in the tree.

The file is the embedded metadata store's (`node_journal.py`). It has no ephemeral nodes: a restart ends all sessions and deletes their
ephemeral nodes. A `czxid` never repeats: its upper half is the number of this opening of the file, its lower half the number of the change
since then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.adapters.local_store import CZXIDS_PER_OPENING_BITS, SESSIONS_PER_OPENING_BITS
from ottla.adapters.node_journal import NodeJournal
from ottla.adapters.node_tree import Ringing, StagedNodes
from ottla.base.errors import StorageError
from ottla.base.ports import Operation, Outcome, StoreResult

log = logging.getLogger("ottla.zookeeper_server")


class DurableTree:
    """The nodes of one file, changed in one thread."""

    def __init__(self, path: str) -> None:
        """Opens or creates the file. Raises `StorageError` if it is damaged or cannot be read."""
        self.path = path
        self._journal = NodeJournal(path)
        self.nodes = self._journal.load()
        self._changes = 0
        self._sessions = 0

    @property
    def last_change(self) -> int:
        """The number of the last change (zxid)."""
        return (self._journal.opening << CZXIDS_PER_OPENING_BITS) + self._changes

    def new_session_id(self) -> int:
        """Returns an id that no other session has, in no opening of the file."""
        self._sessions += 1
        return (self._journal.opening << SESSIONS_PER_OPENING_BITS) + self._sessions

    def change(self, session_id: int, operations: Sequence[Operation]) -> Outcome:
        """Executes all operations or none. Calls the watches of changed nodes before it returns."""
        staged, outcome = self.nodes.stage(operations, czxid=self.last_change + 1, session_id=session_id)
        if outcome.result is not StoreResult.OK:
            return outcome
        failure = self._save(staged)
        if failure is not None:
            log.error("%s", failure)
            return Outcome(StoreResult.DISK_FAILED)
        self._changes += 1
        ring(self.nodes.commit(staged))
        return outcome

    def end_session(self, session_id: int) -> None:
        """Deletes the session's ephemeral nodes and its watches, and calls others' watches of these nodes."""
        self.nodes.take_watches(session_id)
        self._changes += 1
        ring(self.nodes.commit(self.nodes.stage_end_of(session_id)))

    def close(self) -> None:
        self._journal.close()

    def _save(self, staged: StagedNodes) -> StorageError | None:
        try:
            for _ in self._journal.write_in_pieces(staged) if staged.nodes else ():
                pass
        except StorageError as error:
            return error
        return self._journal.commit() if self._journal.is_writing else None


def ring(ringing: Ringing) -> None:
    for _session_id, watch, event in ringing:
        watch(event)
