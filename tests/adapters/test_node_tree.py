"""The tree's rules: versions, parents, ephemerals, watches, and that a multi is all or nothing."""

from __future__ import annotations

import pytest

from ottla.adapters.node_tree import NodeTree
from ottla.base.ports import Check, Create, Delete, Operation, Set, StoreResult, WatchEvent


def run(tree: NodeTree, *operations: Operation, session_id: int = 1, czxid: int = 1) -> tuple[StoreResult, int]:
    staged, outcome = tree.stage(operations, czxid=czxid, session_id=session_id)
    if outcome.result is StoreResult.OK:
        for _session_id, watch, event in tree.commit(staged):
            watch(event)
    return outcome.result, outcome.index


def made(*operations: Operation) -> NodeTree:
    tree = NodeTree()
    assert run(tree, *operations) == (StoreResult.OK, -1)
    return tree


REFUSED = [
    ([Create("/a")], StoreResult.NODE_EXISTS, 0),
    ([Create("/x/y")], StoreResult.NO_NODE, 0),
    ([Create("/e/y")], StoreResult.EPHEMERAL_PARENT, 0),
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
    assert run(tree, Create("/a"), Create("/a/b")) == (StoreResult.OK, -1)
    assert run(tree, Set("/a", b""), Delete("/a/b"), Delete("/a")) == (StoreResult.OK, -1)
    assert tree.nodes() == {}


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
    tree.commit(tree.stage_end_of(7))
    assert tree.children("/a") == ["y"]


def test_watches_are_called_once_and_after_the_whole_multi() -> None:
    tree = made(Create("/a"))
    rung: list[object] = []
    tree.watch_node("/a", 1, lambda event: rung.append((event, tree.get("/a/b") is not None)))
    tree.watch_children("/a", 1, rung.append)
    tree.watch_node("/a/b", 1, rung.append)
    run(tree, Set("/a", b"1"), Create("/a/b"))
    assert rung == [(WatchEvent.CHANGED, True), WatchEvent.CREATED, WatchEvent.CHILDREN]
    run(tree, Set("/a", b"2"), Delete("/a/b"))
    assert len(rung) == 3


def test_a_watch_is_not_called_for_neighbours() -> None:
    tree = made(Create("/a"), Create("/a/b"), Create("/c"))
    rung: list[object] = []
    tree.watch_children("/a", 1, rung.append)
    tree.watch_node("/c", 1, rung.append)
    run(tree, Set("/a/b", b"1"))
    run(tree, Create("/a/b/d"))
    assert rung == []


def test_the_watches_of_a_session_are_taken_together() -> None:
    tree = made(Create("/a"))
    rung: list[object] = []
    for session_id in (1, 2):
        tree.watch_node("/a", session_id, rung.append)
        tree.watch_children("/a", session_id, rung.append)
    assert len(tree.take_watches(1)) == 2
    run(tree, Set("/a", b"1"), Create("/a/b"))
    assert rung == [WatchEvent.CHANGED, WatchEvent.CHILDREN]


def test_numbers_of_sequential_nodes_stay_with_their_parent() -> None:
    tree = made(Create("/a"), Create("/a/n", is_sequential=True))
    run(tree, Delete("/a/n0000000000"))
    again = NodeTree(tree.nodes(), tree.sequences())
    run(again, Create("/a/n", is_sequential=True))
    assert again.children("/a") == ["n0000000001"]
    run(again, Delete("/a/n0000000001"), Delete("/a"))
    assert again.sequences() == {}
