"""A tree of nodes that is stored in a file: each change is written to the file before it is made in the tree. The embedded metadata store
(`local_store.py`) and the server of ZooKeeper's protocol (`zookeeper_server`) use it. The file (`node_journal.py`) has no ephemeral nodes:
a restart ends all sessions and deletes their ephemeral nodes. No two nodes may ever have the same `czxid`, not even nodes that are not
stored. The upper half of a `czxid` is therefore the number of times that the file was opened, which is stored with the first change. The
lower half counts the changes since then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.adapters.node_journal import NodeJournal
from ottla.adapters.node_tree import Ringing, StagedNodes
from ottla.base.errors import StorageError
from ottla.base.ports import Operation, Outcome, StoreResult

log = logging.getLogger("ottla.metadata")

CZXIDS_PER_OPENING_BITS = 32
SESSIONS_PER_OPENING_BITS = 16


class DurableTree:
    """The nodes of one file, changed in one thread."""

    def __init__(self, path: str) -> None:
        """Opens or creates the file. Raises `StorageError` if it is damaged or cannot be read."""
        self.path = path
        self.journal = NodeJournal(path)
        self.nodes = self.journal.load()
        self._changes = 0
        self._sessions = 0

    @property
    def last_change(self) -> int:
        """The number of the last change (zxid)."""
        return (self.journal.opening << CZXIDS_PER_OPENING_BITS) + self._changes

    def new_session_id(self) -> int:
        """Returns an id that no other session has or had since the file was created."""
        self._sessions += 1
        return (self.journal.opening << SESSIONS_PER_OPENING_BITS) + self._sessions

    def change(self, session_id: int, operations: Sequence[Operation]) -> Outcome:
        """Executes all operations or none. Calls the watches of changed nodes before it returns."""
        staged, outcome = self.nodes.stage(operations, czxid=self.last_change + 1, session_id=session_id)
        if outcome.result is not StoreResult.OK:
            return outcome
        failure = self._save(staged)
        if failure is not None:
            log.error("%s", failure)
            return Outcome(StoreResult.DISK_FAILED)
        ring(self.take(staged))
        return outcome

    def take(self, staged: StagedNodes) -> Ringing:
        """Applies a change that was written to the file to the tree. Returns the watches to call."""
        self._changes += 1
        return self.nodes.commit(staged)

    def end_session(self, session_id: int) -> None:
        """Deletes the session's ephemeral nodes and its watches, and calls the watches of other sessions on these nodes."""
        self.nodes.take_watches(session_id)
        ring(self.take(self.nodes.stage_end_of(session_id)))

    def close(self) -> None:
        self.journal.close()

    def _save(self, staged: StagedNodes) -> StorageError | None:
        try:
            for _ in self.journal.write_in_pieces(staged) if staged.nodes else ():
                pass
        except StorageError as error:
            return error
        return self.journal.commit() if self.journal.is_writing else None


def ring(ringing: Ringing) -> None:
    for _session_id, watch, event in ringing:
        watch(event)
