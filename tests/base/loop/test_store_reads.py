"""Steps of procedures that read and write the metadata store."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure, list_children, node_exists, read_in_order, read_node, write
from ottla.base.ports import Create, StoreResult, WatchEvent
from tests.fakes.memory_store import MemoryStore


def result_of(step: Procedure[Any]) -> Any:
    """Returns the result of a step whose answer comes at once."""
    results = []

    def run() -> Procedure[None]:
        results.append((yield from step))

    Runner().start(run())
    return results[0]


def store() -> MemoryStore:
    store = MemoryStore()
    store.put("/a/b", b"B")
    store.put("/a/c", b"C")
    return store


def test_what_is_there_what_is_not_and_what_has_failed() -> None:
    one = store()
    assert result_of(read_node(one, "/a/b")).data == b"B" and result_of(read_node(one, "/a/d")) is None
    assert result_of(list_children(one, "/a")) == ["b", "c"] and result_of(list_children(one, "/d")) is None
    found = result_of(read_in_order(one, ["/a/c", "/d", "/a/b"]))
    assert [node and node.data for node in found] == [b"C", None, b"B"] and result_of(read_in_order(one, [])) == []
    assert result_of(node_exists(one, "/a/b")) is True and result_of(node_exists(one, "/d")) is False
    for step in (read_node(one, "/a"), node_exists(one, "/a"), list_children(one, "/a"), read_in_order(one, ["/a/b", "/a/c"])):
        one.fail_next_read()
        with pytest.raises(StoreFailure) as failure:
            result_of(step)
        assert failure.value.result is StoreResult.CONNECTION_LOST and str(failure.value) == "CONNECTION_LOST"


def test_a_write_returns_its_outcome_and_watches_are_called() -> None:
    one, events = store(), list[WatchEvent]()
    result_of(list_children(one, "/a", watch=events.append))
    assert result_of(write(one, [Create("/a/e", b"")])).result is StoreResult.OK and events == [WatchEvent.CHILDREN]
    assert result_of(write(one, [Create("/a/e", b"")])).result is StoreResult.NODE_EXISTS
    one.put("/e", b"1")
    result_of(read_node(one, "/e", watch=events.append))
    one.disconnect()
    assert events[1:] == [WatchEvent.LOST]
