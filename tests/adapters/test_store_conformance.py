"""What every metadata store does, whatever keeps its tree: one suite over the embedded store, the model of ZooKeeper, our server of its
protocol, and a real one.

Another adapter is added by a `Backing`: it opens sessions on one tree, and runs what is pending until all answers have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol
from uuid import uuid4

import pytest

from ottla.adapters.commit_pace import CommitPace
from ottla.adapters.local_store import LocalStore
from ottla.adapters.zookeeper import ZooKeeperStore
from ottla.base.loop.turns import Turns
from ottla.base.ports import (
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Outcome,
    Set,
    StoreNode,
    StoreResult,
    WatchEvent,
    operation_bytes,
)
from tests.adapters.zookeeper_session import WAIT_MS, open_store
from tests.fakes.memory_store import ZooKeeperModel
from tests.fakes.threads import ManualThreads
from tests.fakes.timers import ManualTimers

OK = StoreResult.OK


class Backing(Protocol):
    def session(self) -> MetadataStore: ...

    def settle(self) -> None:
        """Returns when every request has been answered and every watch called."""


class Embedded:
    def __init__(self) -> None:
        self._first = LocalStore(":memory:")

    def session(self) -> MetadataStore:
        return self._first.another_session()

    def settle(self) -> None:
        return


class OnASlowDisk:
    """The embedded store whose commits are made by a thread."""

    def __init__(self) -> None:
        timers = ManualTimers()
        turns = Turns(timers.clock, timers)
        turns.begin()
        self._threads = ManualThreads()
        self._timers = timers
        self._first = LocalStore(":memory:", turns, AlwaysSlow(self._threads, timers.clock))

    def session(self) -> MetadataStore:
        return self._first.another_session()

    def settle(self) -> None:
        while self._threads.waiting or self._timers.pending():
            self._threads.run_all()
            self._timers.run_due()


class AlwaysSlow(CommitPace):
    is_slow = True


class Model:
    """The model, answering at once or with delays."""

    def __init__(self, timers: ManualTimers | None) -> None:
        self._timers = timers
        self._model = ZooKeeperModel()

    def session(self) -> MetadataStore:
        return self._model.session(self._timers)

    def settle(self) -> None:
        while self._timers is not None and self._timers.advance_to_next():
            pass


class Served:
    """A folder of a server of ZooKeeper's protocol. A server sends a watch before the answer to the write that called it, so a read flushes
    them."""

    def __init__(self, connect: str) -> None:
        self._connect, self._chroot = connect, f"/{uuid4().hex}"
        self._stores: list[ZooKeeperStore] = []

    def session(self) -> MetadataStore:
        store = open_store(self._connect + self._chroot)
        self._stores.append(store)
        return store

    def settle(self) -> None:
        for _ in range(2):
            for store in self._stores:
                answers: list[StoreResult] = []
                store.exists("/", answers.append)
                assert store.wait(lambda: bool(answers), WAIT_MS)  # noqa: B023

    def close(self) -> None:
        for store in self._stores:
            store.close()


BACKINGS: dict[str, Callable[[], Backing]] = {
    "embedded": Embedded,
    "embedded, on a slow disk": OnASlowDisk,
    "model": lambda: Model(None),
    "model with delays": lambda: Model(ManualTimers()),
}
SERVERS = {"our server": "embedded_zookeeper", "zookeeper": "zookeeper"}
"""The fixtures of the servers."""


class Session:
    """A session and the answers to what was asked of it."""

    def __init__(self, backing: Backing) -> None:
        self._backing = backing
        self.store = backing.session()
        self.log: list[object] = []

    def run(self, *operations: Operation) -> Outcome:
        answers: list[Outcome] = []
        self.store.multi(operations, answers.append)
        self._backing.settle()
        (answer,) = answers
        return answer

    def get(self, path: str, label: object = None) -> tuple[StoreResult, StoreNode | None]:
        answers: list[tuple[StoreResult, StoreNode | None]] = []
        self.store.get(path, lambda *answer: answers.append(answer), watch=self.watch(label))
        self._backing.settle()
        (answer,) = answers
        return answer

    def exists(self, path: str, label: object = None) -> StoreResult:
        answers: list[StoreResult] = []
        self.store.exists(path, answers.append, watch=self.watch(label))
        self._backing.settle()
        (answer,) = answers
        return answer

    def children(self, path: str, label: object = None) -> tuple[StoreResult, list[str]]:
        answers: list[tuple[StoreResult, list[str]]] = []
        self.store.children(path, lambda *answer: answers.append(answer), watch=self.watch(label))
        self._backing.settle()
        (answer,) = answers
        return answer

    def watch(self, label: object) -> Callable[[WatchEvent], object] | None:
        return None if label is None else lambda event: self.log.append((label, event))


@pytest.fixture(params=[*BACKINGS, *(pytest.param(name, marks=pytest.mark.foreign) for name in SERVERS)])
def backing(request: pytest.FixtureRequest) -> Iterator[Backing]:
    if request.param in BACKINGS:
        yield BACKINGS[request.param]()
        return
    served = Served(request.getfixturevalue(SERVERS[request.param]).connect)
    yield served
    served.close()


@pytest.fixture
def one(backing: Backing) -> Session:
    session = Session(backing)
    assert session.run(Create("/a", b"1"), Create("/a/b", b"2")).result is OK
    return session


@pytest.fixture
def other(backing: Backing) -> Session:
    return Session(backing)


def test_a_node_has_data_and_versions(one: Session, other: Session) -> None:
    result, node = other.get("/a")
    assert result is OK and node is not None
    assert (node.data, node.version, node.ephemeral_owner) == (b"1", 0, 0)
    assert one.run(Set("/a", b"3", 0)) == Outcome(OK)
    changed = other.get("/a")[1]
    assert changed is not None
    assert (changed.data, changed.version, changed.czxid) == (b"3", 1, node.czxid)
    assert one.run(Set("/a", b"4", 0)) == Outcome(StoreResult.BAD_VERSION, 0)


def test_missing_nodes_differ_from_failures(one: Session) -> None:
    assert one.get("/x") == (StoreResult.NO_NODE, None)
    assert one.exists("/x") is StoreResult.NO_NODE
    assert one.children("/x") == (StoreResult.NO_NODE, [])
    assert one.exists("/a") is OK
    assert one.children("/a") == (OK, ["b"])


REFUSED: list[tuple[list[Operation], StoreResult, int]] = [
    ([Create("/a")], StoreResult.NODE_EXISTS, 0),
    ([Create("/x/y")], StoreResult.NO_NODE, 0),
    ([Set("/x", b"")], StoreResult.NO_NODE, 0),
    ([Delete("/a")], StoreResult.NOT_EMPTY, 0),
    ([Delete("/a/b", 9)], StoreResult.BAD_VERSION, 0),
    ([Check("/a", 1)], StoreResult.BAD_VERSION, 0),
    ([Check("/x", 0)], StoreResult.NO_NODE, 0),
    ([Check("/a", 0), Create("/n"), Set("/a", b"", 7)], StoreResult.BAD_VERSION, 2),
    ([Create("/e", ephemeral=True), Create("/e/child")], StoreResult.EPHEMERAL_PARENT, 1),
]


@pytest.mark.parametrize(("operations", "result", "index"), REFUSED)
def test_a_multi_is_all_or_nothing(one: Session, operations: list[Operation], result: StoreResult, index: int) -> None:
    assert one.run(*operations) == Outcome(result, index)
    assert one.exists("/n") is StoreResult.NO_NODE
    assert one.exists("/e") is StoreResult.NO_NODE


def test_a_check_alone_changes_nothing_and_answers_nothing_but_ok(one: Session) -> None:
    assert one.run(Check("/a", 0)) == Outcome(OK)
    assert one.get("/a")[1] is not None


def test_czxids_rise_with_each_multi(one: Session, other: Session) -> None:
    czxids = []
    for session in (one, other, one):
        session.run(Create("/n"))
        node = session.get("/n")[1]
        assert node is not None
        czxids.append(node.czxid)
        session.run(Delete("/n"))
    assert czxids == sorted(set(czxids))


def test_sequential_nodes_get_rising_numbers_that_never_repeat(one: Session, other: Session) -> None:
    first = one.run(Create("/a/n-", is_sequential=True), Create("/a/n-", b"x", is_sequential=True))
    assert first.result is OK and len(first.created) == 2
    assert all(path.startswith("/a/n-") and len(path) == len("/a/n-") + 10 and path[-10:].isdigit() for path in first.created)
    assert one.run(Delete(first.created[1])).result is OK
    second = other.run(Create("/a/n-", is_sequential=True))
    assert [*first.created, *second.created] == sorted({*first.created, *second.created})


def test_the_paths_of_created_nodes_are_in_the_order_of_the_operations(one: Session) -> None:
    assert one.run(Create("/m"), Set("/a", b""), Create("/m/k")).created == ("/m", "/m/k")


def test_ephemeral_nodes_go_with_their_session(one: Session, other: Session, backing: Backing) -> None:
    other.run(Create("/e", b"", ephemeral=True))
    node = one.get("/e", "e")[1]
    assert node is not None and node.ephemeral_owner == other.store.session_id() != one.store.session_id()
    assert one.children("/a", "children") == (OK, ["b"])
    other.store.close()
    backing.settle()
    assert one.exists("/e") is StoreResult.NO_NODE
    assert one.log == [("e", WatchEvent.DELETED)]


def test_a_closed_session_is_over(one: Session, other: Session) -> None:
    other.store.close()
    assert other.run(Create("/n")).result is StoreResult.SESSION_EXPIRED
    assert other.get("/a") == (StoreResult.SESSION_EXPIRED, None)
    assert other.exists("/a") is StoreResult.SESSION_EXPIRED
    assert other.children("/a") == (StoreResult.SESSION_EXPIRED, [])
    assert not other.store.is_connected() and one.store.is_connected()
    assert one.exists("/n") is StoreResult.NO_NODE


def test_a_watch_is_called_once(one: Session, other: Session) -> None:
    one.get("/a", "data")
    other.run(Set("/a", b"x"))
    other.run(Set("/a", b"y"))
    assert one.log == [("data", WatchEvent.CHANGED)]


def test_what_each_read_watches(one: Session, other: Session) -> None:
    one.get("/a/b", "get")
    one.exists("/a/b", "exists")
    one.children("/a/b", "own children")
    one.children("/a", "children")
    other.run(Set("/a/b", b"x"))
    assert sorted(map(str, one.log)) == sorted(map(str, [("get", WatchEvent.CHANGED), ("exists", WatchEvent.CHANGED)]))
    one.log.clear()
    one.get("/a/b", "get")
    other.run(Delete("/a/b"))
    assert sorted(map(str, one.log)) == sorted(
        map(
            str,
            [
                ("get", WatchEvent.DELETED),
                ("own children", WatchEvent.DELETED),
                ("children", WatchEvent.CHILDREN),
            ],
        )
    )


def test_a_node_that_is_made_anew_in_one_multi_was_deleted(one: Session, other: Session) -> None:
    one.get("/a/b", "get")
    one.children("/a", "children")
    other.run(Delete("/a/b"), Create("/a/b"))
    assert sorted(map(str, one.log)) == sorted(map(str, [("get", WatchEvent.DELETED), ("children", WatchEvent.CHILDREN)]))


def test_only_exists_watches_a_node_that_is_not_there_yet(one: Session, other: Session) -> None:
    one.get("/n", "get")
    one.children("/n", "children")
    one.exists("/n", "exists")
    other.run(Create("/n"))
    assert one.log == [("exists", WatchEvent.CREATED)]


def test_a_refused_multi_calls_no_watch(one: Session, other: Session) -> None:
    one.get("/a", "data")
    one.exists("/n", "n")
    other.run(Set("/a", b"x"), Create("/n"), Check("/a", 7))
    assert one.log == []


def test_a_watch_comes_before_the_answer_that_shows_the_change(one: Session, other: Session, backing: Backing) -> None:
    one.get("/a", "watch")
    other.store.multi([Set("/a", b"new")], lambda outcome: None)
    for _ in range(3):
        one.store.get("/a", lambda _result, node: one.log.append(node.data if node is not None else None))
    backing.settle()
    events = [entry for entry in one.log if entry != b"1"]
    assert events[0] == ("watch", WatchEvent.CHANGED) or events == [("watch", WatchEvent.CHANGED)]


def test_answers_come_in_the_order_of_the_requests(one: Session, backing: Backing) -> None:
    one.store.multi([Set("/a", b"x")], lambda outcome: one.log.append("multi"))
    one.store.get("/a", lambda result, node: one.log.append(node.data if node is not None else None))
    one.store.children("/a", lambda result, names: one.log.append(names))
    one.store.exists("/x", one.log.append)
    backing.settle()
    assert one.log == ["multi", b"x", ["b"], StoreResult.NO_NODE]


def test_a_multi_larger_than_the_bound_is_refused_and_one_of_the_bound_is_taken(one: Session) -> None:
    room = MULTI_BYTES_MAX - operation_bytes(Set("/a", b"")) - operation_bytes(Check("/a", 0))
    assert one.run(Set("/a", bytes(room + 1)), Check("/a", 1)) == Outcome(StoreResult.TOO_LARGE)
    assert one.run(Set("/a", bytes(room)), Check("/a", 1)).result is OK
