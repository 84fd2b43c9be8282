"""The tree's rules: versions, parents, ephemerals, watches, and that a multi is all or nothing."""

from __future__ import annotations

import pytest

from ottla.adapters.node_tree import NodeTree
from ottla.base.ports import Check, Create, Delete, Operation, Set, StoreResult


def run(tree: NodeTree, *operations: Operation, session_id: int = 1, czxid: int = 1) -> tuple[StoreResult, int]:
    staged, result, index = tree.stage(operations, czxid=czxid, session_id=session_id)
    if result is StoreResult.OK:
        tree.commit(staged)
    return result, index


def made(*operations: Operation) -> NodeTree:
    tree = NodeTree()
    assert run(tree, *operations) == (StoreResult.OK, -1)
    return tree


REFUSED = [
    ([Create("/a")], StoreResult.NODE_EXISTS, 0),
    ([Create("/x/y")], StoreResult.NO_NODE, 0),
    ([Create("/e/y")], StoreResult.NO_NODE, 0),
    ([Set("/x", b"")], StoreResult.NO_NODE, 0),
    ([Set("/a", b"", 5)], StoreResult.BAD_VERSION, 0),
    ([Delete("/x")], StoreResult.NO_NODE, 0),
    ([Delete("/a")], StoreResult.NOT_EMPTY, 0),
    ([Delete("/a/b", 9)], StoreResult.BAD_VERSION, 0),
    ([Check("/a", 1)], StoreResult.BAD_VERSION, 0),
    ([Check("/x", 0)], StoreResult.NO_NODE, 0),
    ([Check("/a", 0), Create("/n"), Set("/a", b"", 7)], StoreResult.BAD_VERSION, 2),
    ([Delete("/a/b"), Create("/a/c"), Delete("/a")], StoreResult.NOT_EMPTY, 2),
    ([Create("/n"), Create("/n")], StoreResult.NODE_EXISTS, 1),
    ([Delete("/a/b"), Set("/a/b", b"")], StoreResult.NO_NODE, 1),
]


@pytest.mark.parametrize(("operations", "result", "index"), REFUSED)
def test_a_refused_multi_names_the_operation_and_changes_nothing(operations: list[Operation], result: StoreResult, index: int) -> None:
    tree = made(Create("/a", b"1"), Create("/a/b"), Create("/e", ephemeral=True))
    before = tree.nodes()
    assert run(tree, *operations) == (result, index)
    assert tree.nodes() == before


def test_a_multi_sees_its_own_operations() -> None:
    tree = made(Create("/a"), Create("/a/b"), Set("/a/b", b"x"), Check("/a/b", 1), Create("/a/c"), Delete("/a/c"))
    node = tree.get("/a/b")
    assert node is not None
    assert (node.data, node.version) == (b"x", 1)
    assert tree.children("/a") == ["b"]


def test_a_parent_goes_with_its_children() -> None:
    tree = made(Create("/a"), Create("/a/b"), Create("/a/b/c"))
    assert run(tree, Delete("/a/b/c"), Delete("/a/b"), Delete("/a")) == (StoreResult.OK, -1)
    assert tree.nodes() == {}
    assert run(tree, Create("/a")) == (StoreResult.OK, -1)


def test_a_node_made_again_is_another_one() -> None:
    tree = made(Create("/a"), Set("/a", b"1"))
    run(tree, Delete("/a"), czxid=2)
    run(tree, Create("/a"), czxid=3)
    node = tree.get("/a")
    assert node is not None
    assert (node.version, node.czxid) == (0, 3)


def test_ephemerals_know_their_session() -> None:
    tree = made(Create("/a"))
    run(tree, Create("/a/x", ephemeral=True), session_id=7)
    run(tree, Create("/a/y", ephemeral=True), session_id=8)
    assert list(tree.owned_by(7)) == ["/a/x"]


def test_watches_ring_once_and_after_the_whole_multi() -> None:
    tree = made(Create("/a"))
    rung: list[str] = []
    tree.watch_node("/a", lambda: rung.append(f"a {tree.get('/a/b') is not None}"))
    tree.watch_children("/a", lambda: rung.append("children"))
    tree.watch_node("/a/b", lambda: rung.append("b"))
    run(tree, Set("/a", b"1"), Create("/a/b"))
    assert rung == ["a True", "b", "children"]
    run(tree, Set("/a", b"2"), Delete("/a/b"))
    assert len(rung) == 3


def test_a_watch_does_not_ring_for_its_neighbours() -> None:
    tree = made(Create("/a"), Create("/a/b"), Create("/c"))
    rung: list[str] = []
    tree.watch_children("/a", lambda: rung.append("children"))
    tree.watch_node("/c", lambda: rung.append("c"))
    run(tree, Set("/a/b", b"1"))
    run(tree, Create("/a/b/d"))
    assert rung == []
