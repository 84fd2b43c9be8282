"""A metadata store in memory with the tree of the real one; writes can be made to fail, to be lost on the way, or to wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.adapters.node_tree import NodeTree
from ottla.base.ports import Create, Node, Operation, StoreResult


class MemoryStore:
    """`ports.MetadataStore`. `fail_next(result)` refuses the next multi; with `is_applied` the write happens and only its answer is
    lost.
    """

    def __init__(self, nodes: dict[str, Node] | None = None, session: int = 1) -> None:
        self._tree = NodeTree(nodes)
        self._session = session
        self._multis = 0
        self._failure: tuple[StoreResult, bool] | None = None
        self._held: list[Callable[[], None]] | None = None
        self.multis: list[list[Operation]] = []

    def get(self, path: str, done: Callable[[Node | None], None], *, watch: Callable[[], None] | None = None) -> None:
        if watch is not None:
            self._tree.watch_node(path, watch)
        done(self._tree.get(path))

    def children(self, path: str, done: Callable[[list[str]], None], *, watch: Callable[[], None] | None = None) -> None:
        if watch is not None:
            self._tree.watch_children(path, watch)
        done(self._tree.children(path))

    def multi(self, operations: Sequence[Operation], done: Callable[[StoreResult, int], None]) -> None:
        operations = list(operations)
        if self._held is not None:
            self._held.append(lambda: self._run(operations, done))
        else:
            self._run(operations, done)

    def session_id(self) -> int:
        return self._session

    def close(self) -> None:
        self._tree = NodeTree(self.lasting_nodes())

    def fail_next(self, result: StoreResult, *, is_applied: bool = False) -> None:
        self._failure = (result, is_applied)

    def hold(self) -> None:
        """Writes wait until `release`, as they do on the way to a server."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for run in held:
            run()

    def put(self, path: str, data: bytes) -> None:
        """Somebody else writes a node, whole branch included."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:depth])
            if self._tree.get(above) is None:
                self._run([Create(above, data if depth == len(parts) else b"")], lambda result, index: None)

    def nodes(self) -> dict[str, Node]:
        return self._tree.nodes()

    def lasting_nodes(self) -> dict[str, Node]:
        """What a restart finds."""
        return {path: node for path, node in self._tree.nodes().items() if not node.ephemeral_owner}

    def reopened(self) -> MemoryStore:
        return MemoryStore(self.lasting_nodes(), self._session + 1)

    def _run(self, operations: list[Operation], done: Callable[[StoreResult, int], None]) -> None:
        failure, self._failure = self._failure, None
        if failure is not None and not failure[1]:
            done(failure[0], 0)
            return
        czxid = (self._session << 32) + self._multis + 1
        staged, result, index = self._tree.stage(operations, czxid=czxid, session_id=self._session)
        if result is StoreResult.OK:
            self.multis.append(operations)
            self._multis += 1
            self._tree.commit(staged)
        done(failure[0] if failure is not None else result, index)
