"""A tree of versioned nodes in memory: what a `multi` does to it, decided apart from where it is kept.

`stage` looks at a whole multi against the tree and answers the nodes it would leave behind, or the first operation that fails and why;
nothing has changed then. `commit` puts staged nodes in and rings the watches they concern. Between the two a store writes its journal, so
the tree never holds what the journal does not.

The rules are ZooKeeper's: a parent must exist and must not be ephemeral, a node with children is not deleted, a version of -1 matches
any. Watches ring once, after the whole multi; a child watch rings when a child comes or goes, a node watch when the node comes, changes
or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.base.ports import Check, Create, Delete, Node, Operation, Set, StoreResult

Watch = Callable[[], None]
Staged = dict[str, Node | None]
"""What a multi leaves behind: a node, or None where one went."""
Growth = dict[str, int]
"""How many children each touched node gains or loses, so that a parent and its children may go in one multi."""

ROOT = Node(data=b"", version=0, czxid=0)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


class NodeTree:
    """The nodes by path; the root is the empty path and always there."""

    def __init__(self, nodes: Mapping[str, Node] | None = None) -> None:
        self._nodes: dict[str, Node] = {"": ROOT}
        self._children: dict[str, dict[str, None]] = {"": {}}
        self._node_watches: dict[str, list[Watch]] = {}
        self._child_watches: dict[str, list[Watch]] = {}
        for path in sorted(nodes or {}):
            self._put(path, (nodes or {})[path])

    def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names of the children, sorted; none for a node that is not there."""
        return sorted(self._children.get(path, ()))

    def nodes(self) -> dict[str, Node]:
        """All but the root."""
        return {path: node for path, node in self._nodes.items() if path}

    def watch_node(self, path: str, watch: Watch) -> None:
        self._node_watches.setdefault(path, []).append(watch)

    def watch_children(self, path: str, watch: Watch) -> None:
        self._child_watches.setdefault(path, []).append(watch)

    def stage(self, operations: Sequence[Operation], *, czxid: int, session_id: int) -> tuple[Staged, StoreResult, int]:
        """(what would be left behind, OK, -1), or (nothing, the failure, the index of the operation that failed)."""
        staged, growth = Staged(), Growth()
        result, index = self.stage_more(operations, staged, growth, czxid=czxid, session_id=session_id)
        return (staged if result is StoreResult.OK else {}), result, index

    def stage_more(
        self, operations: Sequence[Operation], staged: Staged, growth: Growth, *, czxid: int, session_id: int
    ) -> tuple[StoreResult, int]:
        """The same for the next operations of a multi that is looked at piece by piece; the tree must stay as it is meanwhile."""
        for index, operation in enumerate(operations):
            result = self._stage_one(operation, staged, growth, czxid, session_id)
            if result is not StoreResult.OK:
                return result, index
        return StoreResult.OK, -1

    def commit(self, staged: Staged) -> None:
        """Puts the staged nodes in, then rings the watches."""
        changed_parents: dict[str, None] = {}
        for path, node in staged.items():
            was_there = path in self._nodes
            if node is not None:
                self._put(path, node)
            elif was_there:
                self._remove(path)
            if was_there != (node is not None):
                changed_parents[parent_of(path)] = None
        ringing = [watch for path in staged for watch in self._node_watches.pop(path, ())]
        ringing += [watch for path in changed_parents for watch in self._child_watches.pop(path, ())]
        for watch in ringing:
            watch()

    def owned_by(self, session_id: int) -> Iterable[str]:
        """The ephemeral nodes of a session."""
        return [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]

    def _stage_one(self, operation: Operation, staged: Staged, growth: Growth, czxid: int, session_id: int) -> StoreResult:
        path = operation.path
        node = staged[path] if path in staged else self._nodes.get(path)
        if isinstance(operation, Create):
            return self._stage_create(operation, node, staged, growth, czxid, session_id)
        if node is None:
            return StoreResult.NO_NODE
        if operation.version not in (-1, node.version):
            return StoreResult.BAD_VERSION
        if isinstance(operation, Set):
            staged[path] = Node(data=operation.data, version=node.version + 1, czxid=node.czxid, ephemeral_owner=node.ephemeral_owner)
        elif isinstance(operation, Delete):
            if len(self._children.get(path, ())) + growth.get(path, 0) > 0:
                return StoreResult.NOT_EMPTY
            staged[path] = None
            growth[parent_of(path)] = growth.get(parent_of(path), 0) - 1
        else:
            assert isinstance(operation, Check)
        return StoreResult.OK

    def _stage_create(
        self, operation: Create, node: Node | None, staged: Staged, growth: Growth, czxid: int, session_id: int
    ) -> StoreResult:
        path, parent = operation.path, parent_of(operation.path)
        assert path.startswith("/") and not path.endswith("/"), f"{path!r} is not a path"
        if node is not None:
            return StoreResult.NODE_EXISTS
        above = staged[parent] if parent in staged else self._nodes.get(parent)
        if above is None or above.ephemeral_owner:
            return StoreResult.NO_NODE
        owner = session_id if operation.ephemeral else 0
        staged[path] = Node(data=operation.data, version=0, czxid=czxid, ephemeral_owner=owner)
        growth[parent] = growth.get(parent, 0) + 1
        return StoreResult.OK

    def _put(self, path: str, node: Node) -> None:
        self._nodes[path] = node
        self._children.setdefault(path, {})
        self._children.setdefault(parent_of(path), {})[path.rpartition("/")[2]] = None

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        assert not self._children.pop(path), f"{path} went before its children"
        del self._children[parent_of(path)][path.rpartition("/")[2]]
