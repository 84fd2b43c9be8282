"""A tree of versioned nodes in memory. It decides what a multi changes; the caller stores the nodes.

`stage` checks a whole multi against the tree. It returns the nodes as they would be afterwards, or the first operation that fails and why;
the tree is unchanged. `commit` applies staged nodes to the tree and returns the watches to call. The store writes its journal between the
two calls, so every change in the tree is also in the journal, except changes of ephemeral nodes, which the journal never has.

The rules are ZooKeeper's: a parent must exist and must not be ephemeral, a node with children is not deleted, version -1 matches any
version, and numbers of sequential nodes never repeat below one parent. Each watch is called once, after the whole multi: watches of nodes
first, then watches of children.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ottla.base.ports import Check, Create, Delete, Operation, Outcome, Set, StoreNode, StoreResult, Watch, WatchEvent

Ringing = list[tuple[int, Watch, WatchEvent]]
"""Watches to call: the session that set the watch, the function, and the event."""

ROOT = StoreNode(data=b"", version=0, czxid=0)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


class StagedNodes:
    """The nodes that a multi changes, as they are after it."""

    __slots__ = ("created", "deleted", "growth", "nodes", "sequences")

    def __init__(self) -> None:
        self.nodes: dict[str, StoreNode | None] = {}  # None: deleted
        self.growth: dict[str, int] = {}  # change of the number of children, by parent
        self.sequences: dict[str, int] = {}  # the next number of sequential children, by parent
        self.created: list[str] = []
        self.deleted: dict[str, None] = {}  # also nodes that the multi creates again


class NodeTree:
    """The nodes by path. The root has the empty path and always exists."""

    def __init__(self, nodes: Mapping[str, StoreNode] | None = None, sequences: Mapping[str, int] | None = None) -> None:
        self._nodes: dict[str, StoreNode] = {"": ROOT}
        self._children: dict[str, dict[str, None]] = {"": {}}
        self._sequences: dict[str, int] = dict(sequences or {})
        self._node_watches: dict[str, list[tuple[int, Watch]]] = {}
        self._child_watches: dict[str, list[tuple[int, Watch]]] = {}
        for path in sorted(nodes or {}):
            self._put(path, (nodes or {})[path])

    def get(self, path: str) -> StoreNode | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Returns the sorted names of the children. A node that does not exist has no children."""
        return sorted(self._children.get(path, ()))

    def child_count(self, path: str) -> int:
        return len(self._children.get(path, ()))

    def nodes(self) -> dict[str, StoreNode]:
        """Returns all nodes except the root."""
        return {path: node for path, node in self._nodes.items() if path}

    def sequences(self) -> dict[str, int]:
        return dict(self._sequences)

    def watch_node(self, path: str, session_id: int, watch: Watch) -> None:
        self._node_watches.setdefault(path, []).append((session_id, watch))

    def watch_children(self, path: str, session_id: int, watch: Watch) -> None:
        self._child_watches.setdefault(path, []).append((session_id, watch))

    def take_watches(self, session_id: int) -> list[Watch]:
        """Removes all watches of a session and returns them."""
        taken: list[Watch] = []
        for watches in (self._node_watches, self._child_watches):
            for path, left in list(watches.items()):
                taken += [watch for owner, watch in left if owner == session_id]
                staying = [(owner, watch) for owner, watch in left if owner != session_id]
                if staying:
                    watches[path] = staying
                else:
                    del watches[path]
        return taken

    def stage(self, operations: Sequence[Operation], *, czxid: int, session_id: int) -> tuple[StagedNodes, Outcome]:
        """Returns (the changed nodes, OK), or (nothing, the failure with the index of the failed operation)."""
        staged = StagedNodes()
        outcome = self.stage_more(operations, staged, czxid=czxid, session_id=session_id)
        return (staged if outcome.result is StoreResult.OK else StagedNodes()), outcome

    def stage_more(self, operations: Sequence[Operation], staged: StagedNodes, *, czxid: int, session_id: int) -> Outcome:
        """Stages the next operations of a multi that is checked piece by piece. The tree must not change between the pieces."""
        for index, operation in enumerate(operations):
            result = self._stage_one(operation, staged, czxid, session_id)
            if result is not StoreResult.OK:
                return Outcome(result, index)
        return Outcome(StoreResult.OK, -1, tuple(staged.created))

    def stage_end_of(self, session_id: int) -> StagedNodes:
        """Returns the removal of all ephemeral nodes of a session."""
        staged = StagedNodes()
        staged.nodes = dict.fromkeys((path for path, node in self._nodes.items() if node.ephemeral_owner == session_id), None)
        return staged

    def commit(self, staged: StagedNodes) -> Ringing:
        """Applies the staged nodes. Returns the watches that the caller must call."""
        changed: dict[str, WatchEvent] = {}
        changed_parents: dict[str, None] = {}
        for path, node in staged.nodes.items():
            before = self._nodes.get(path)
            is_replaced = before is not None and node is not None and before.czxid != node.czxid
            if node is not None:
                self._put(path, node)
                changed[path] = WatchEvent.CREATED if before is None else WatchEvent.DELETED if is_replaced else WatchEvent.CHANGED
            elif before is not None:
                self._remove(path)
                changed[path] = WatchEvent.DELETED
            if is_replaced or (before is None) != (node is None):
                changed_parents[parent_of(path)] = None
        self._sequences.update((path, number) for path, number in staged.sequences.items() if path in self._nodes)
        return [*self._ring_nodes(changed), *self._ring_parents(changed_parents, changed)]

    def _ring_nodes(self, changed: Mapping[str, WatchEvent]) -> Iterator[tuple[int, Watch, WatchEvent]]:
        for path, event in changed.items():
            for session_id, watch in self._node_watches.pop(path, ()):
                yield session_id, watch, event

    def _ring_parents(
        self, parents: Mapping[str, None], changed: Mapping[str, WatchEvent]
    ) -> Iterator[tuple[int, Watch, WatchEvent]]:
        for path in [*parents, *(path for path, event in changed.items() if event is WatchEvent.DELETED)]:
            event = WatchEvent.DELETED if changed.get(path) is WatchEvent.DELETED else WatchEvent.CHILDREN
            for session_id, watch in self._child_watches.pop(path, ()):
                yield session_id, watch, event

    def _stage_one(self, operation: Operation, staged: StagedNodes, czxid: int, session_id: int) -> StoreResult:
        if isinstance(operation, Create):
            return self._stage_create(operation, staged, czxid, session_id)
        path = operation.path
        node = staged.nodes[path] if path in staged.nodes else self._nodes.get(path)
        if node is None:
            return StoreResult.NO_NODE
        if operation.version not in (-1, node.version):
            return StoreResult.BAD_VERSION
        if isinstance(operation, Set):
            staged.nodes[path] = StoreNode(
                data=operation.data, version=node.version + 1, czxid=node.czxid, ephemeral_owner=node.ephemeral_owner
            )
        elif isinstance(operation, Delete):
            if len(self._children.get(path, ())) + staged.growth.get(path, 0) > 0:
                return StoreResult.NOT_EMPTY
            staged.nodes.pop(path, None)  # `commit` removes nodes in the order of their deletion, children first
            staged.nodes[path] = None
            staged.deleted[path] = None
            staged.sequences.pop(path, None)
            staged.growth[parent_of(path)] = staged.growth.get(parent_of(path), 0) - 1
        else:
            assert isinstance(operation, Check)
        return StoreResult.OK

    def _stage_create(self, operation: Create, staged: StagedNodes, czxid: int, session_id: int) -> StoreResult:
        path, parent = operation.path, parent_of(operation.path)
        assert path.startswith("/") and (operation.is_sequential or not path.endswith("/")), f"{path!r} is not a path"
        above = staged.nodes[parent] if parent in staged.nodes else self._nodes.get(parent)
        if above is None:
            return StoreResult.NO_NODE
        if operation.is_sequential:
            path += f"{staged.sequences.get(parent, self._sequences.get(parent, 0)):010d}"
        if (staged.nodes[path] if path in staged.nodes else self._nodes.get(path)) is not None:
            return StoreResult.NODE_EXISTS
        if above.ephemeral_owner:
            return StoreResult.EPHEMERAL_PARENT
        if operation.is_sequential:
            staged.sequences[parent] = staged.sequences.get(parent, self._sequences.get(parent, 0)) + 1
        owner = session_id if operation.ephemeral else 0
        staged.nodes[path] = StoreNode(data=operation.data, version=0, czxid=czxid, ephemeral_owner=owner)
        staged.growth[parent] = staged.growth.get(parent, 0) + 1
        staged.created.append(path)
        return StoreResult.OK

    def _put(self, path: str, node: StoreNode) -> None:
        self._nodes[path] = node
        self._children.setdefault(path, {})
        self._children.setdefault(parent_of(path), {})[path.rpartition("/")[2]] = None

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._sequences.pop(path, None)
        assert not self._children.pop(path), f"{path} went before its children"
        del self._children[parent_of(path)][path.rpartition("/")[2]]
