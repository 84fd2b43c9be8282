"""The store of a single broker: what is on the disk is what is in memory, through restarts, kills and damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.adapters.commit_pace import LOOKED_AT, CommitPace
from ottla.adapters.local_store import LocalStore
from ottla.base.errors import StorageError
from ottla.base.loop import turns
from ottla.base.loop.turns import Turns
from ottla.base.ports import Check, Create, Delete, MetadataStore, Operation, Outcome, Set, StoreNode, StoreResult
from tests.fakes.memory_store import MemoryStore
from tests.fakes.threads import ManualThreads
from tests.fakes.timers import ManualTimers

PATHS = ["/a", "/b", "/a/x", "/a/y", "/a/x/1"]


def run(store: MetadataStore, *operations: Operation) -> tuple[StoreResult, int]:
    answers: list[tuple[StoreResult, int]] = []
    store.multi(operations, lambda outcome: answers.append((outcome.result, outcome.index)))
    assert len(answers) == 1, "the embedded store answers before it returns"
    return answers[0]


def get(store: MetadataStore, path: str) -> StoreNode | None:
    answers: list[StoreNode | None] = []
    store.get(path, lambda _result, node: answers.append(node))
    return answers[0]


def children(store: MetadataStore, path: str) -> list[str]:
    answers: list[list[str]] = []
    store.children(path, lambda _result, names: answers.append(names))
    return answers[0]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.sqlite")


def test_nodes_survive_a_restart_and_ephemerals_do_not(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a", b"1"), Create("/a/e", b"", ephemeral=True), Set("/a", b"2"))
    before = get(store, "/a")
    store.close()
    again = LocalStore(path)
    assert get(again, "/a") == before
    assert children(again, "/a") == []
    again.close()


def test_an_ephemeral_node_in_the_place_of_a_lasting_one_is_gone_after_a_restart(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a", b"lasting"))
    run(store, Delete("/a"), Create("/a", b"ephemeral", ephemeral=True))
    assert (get(store, "/a") or StoreNode(data=b"", version=0, czxid=0)).data == b"ephemeral"
    store.close()
    store = LocalStore(path)
    assert get(store, "/a") is None
    store.close()


def test_czxids_rise_over_restarts_even_without_a_lasting_write(path: str) -> None:
    seen = []
    for _ in range(3):
        store = LocalStore(path)
        run(store, Create("/e", b"", ephemeral=True))
        node = get(store, "/e")
        assert node is not None
        seen.append(node.czxid)
        store.close()
    assert seen == sorted(set(seen))


def test_a_kill_loses_nothing_that_was_answered(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a"), Create("/a/b", b"x"))
    again = LocalStore(path)  # The first one was never closed.
    assert get(again, "/a/b") is not None
    again.close()
    store.close()


def test_a_failed_write_changes_nothing(path: str, caplog: pytest.LogCaptureFixture) -> None:
    store = LocalStore(path)
    run(store, Create("/a", b"1"))
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store._shared.durable.journal._database.execute("PRAGMA busy_timeout=1")
    assert run(store, Set("/a", b"2")) == (StoreResult.DISK_FAILED, -1)
    assert "cannot be written" in caplog.text
    node = get(store, "/a")
    assert node is not None
    assert node.data == b"1"
    blocker.execute("ROLLBACK")
    blocker.close()
    assert run(store, Set("/a", b"3")) == (StoreResult.OK, -1)
    store.close()


class FailingDatabase:
    """A database of which some statements fail."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.failing: tuple[str, ...] = ()
        self.on_commit: Callable[[], object] = lambda: None

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.on_commit()
        if sql in self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        return self.database.execute(sql, *arguments)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.database, name)


def test_a_rollback_that_fails_too_is_answered_and_made_up_for(path: str) -> None:
    store = LocalStore(path)
    database = FailingDatabase(store._shared.durable.journal._database)
    store._shared.durable.journal._database = database  # type: ignore[assignment]
    database.failing = ("COMMIT", "ROLLBACK")
    assert run(store, Create("/a")) == run(store, Create("/b")) == (StoreResult.DISK_FAILED, -1)
    database.failing = ()
    assert run(store, Create("/b")) == (StoreResult.OK, -1)
    store.close()
    again = LocalStore(path)
    assert sorted(again._shared.durable.nodes.nodes()) == ["/b"]
    again.close()


@pytest.mark.parametrize("damage", [b"not a database at all, but text", b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_file_is_one_line_and_stays_as_it_is(path: str, damage: bytes) -> None:
    Path(path).write_bytes(damage)
    with pytest.raises(StorageError) as caught:
        LocalStore(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert Path(path).read_bytes() == damage


def test_a_page_of_garbage_is_found_at_the_start(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a"), *(Create(f"/a/{index}", bytes(100)) for index in range(500)))
    store.close()
    data = bytearray(Path(path).read_bytes())
    data[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    Path(path).write_bytes(data)
    with pytest.raises(StorageError, match="metadata store"):
        LocalStore(path)


def test_a_newer_file_is_refused(path: str) -> None:
    LocalStore(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(StorageError, match="newer version"):
        LocalStore(path)


def test_a_closed_store_answers_like_an_expired_session(path: str) -> None:
    store = LocalStore(path)
    store.close()
    assert run(store, Create("/a")) == (StoreResult.SESSION_EXPIRED, -1)


def test_sequential_numbers_survive_a_restart(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a"), Create("/a/n", is_sequential=True), Delete("/a/n0000000000"))
    store.close()
    again = LocalStore(path)
    run(again, Create("/a/n", is_sequential=True))
    assert children(again, "/a") == ["n0000000001"]
    run(again, Delete("/a/n0000000001"), Delete("/a"))
    assert again._shared.durable.journal.load().sequences() == {}
    again.close()


def test_a_file_from_before_sequential_nodes_is_read(path: str) -> None:
    store = LocalStore(path)
    run(store, Create("/a"))
    store.close()
    database = sqlite3.connect(path)
    database.execute("DROP TABLE sequence")
    database.close()
    again = LocalStore(path)
    assert get(again, "/a") is not None
    again.close()


def test_a_session_that_ends_during_a_multi_leaves_no_ephemeral_nodes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Turning(path, monkeypatch)
    other = world.store.another_session()
    other.multi([*LARGE, Create("/e", ephemeral=True)], lambda outcome: world.answers.append((outcome.result, outcome.index)))
    other.close()
    world.multi(Create("/a/last"))
    world.timers.run_due()
    assert world.answers == [(StoreResult.OK, -1), (StoreResult.OK, -1)]
    assert get(world.store, "/e") is None and get(world.store, "/a/last") is not None
    world.store.close()


VERSIONS = st.sampled_from([-1, -1, -1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=3), st.booleans()),
    st.builds(Create, st.sampled_from(PATHS), is_sequential=st.just(True)),
    st.builds(Set, st.sampled_from(PATHS), st.binary(max_size=3), VERSIONS),
    st.builds(Delete, st.sampled_from(PATHS), VERSIONS),
    st.builds(Check, st.sampled_from(PATHS), VERSIONS),
)


class StoreMachine(RuleBasedStateMachine):
    """The SQLite store beside the one in memory: the same answers, the same nodes, also after restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.store = LocalStore(":memory:")
        self.model = MemoryStore()

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4))
    def multi(self, operations: list[Operation]) -> None:
        assert run(self.store, *operations) == run(self.model, *operations)

    @rule()
    def restart(self) -> None:
        """The journal is read anew, as a start does; the connection stays, because it holds the memory."""
        shared = self.store._shared
        shared.durable.nodes = shared.durable.journal.load()
        self.model = self.model.reopened()

    @invariant()
    def both_hold_the_same(self) -> None:
        ours = {path: (node.data, node.version) for path, node in self.store._shared.durable.nodes.nodes().items()}
        assert ours == {path: (node.data, node.version) for path, node in self.model.nodes().items()}

    @invariant()
    def the_journal_is_the_tree(self) -> None:
        nodes = self.store._shared.durable.journal.load().nodes()
        assert nodes == {path: node for path, node in self.store._shared.durable.nodes.nodes().items() if not node.ephemeral_owner}

    def teardown(self) -> None:
        self.store.close()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


LARGE = [Create("/a"), *(Create(f"/a/{index}", b"x" * 5) for index in range(5000))]


class Turning:
    """A store whose large multis are done in turns that the test gives."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(turns, "PIECE_MS", 0)
        self.timers = ManualTimers()
        self.turns = Turns(self.timers.clock, self.timers)
        self.store = LocalStore(path, self.turns)
        self.turns.begin()
        self.answers: list[tuple[StoreResult, int]] = []
        self.found: list[StoreResult] = []

    def multi(self, *operations: Operation) -> None:
        self.store.multi(operations, lambda outcome: self.answers.append((outcome.result, outcome.index)))


def test_a_large_multi_is_done_in_turns_and_others_wait_behind_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Turning(path, monkeypatch)
    world.multi(*LARGE)
    world.multi(Create("/a/7"))
    world.multi(Create("/a/last"))
    world.store.exists("/a/last", world.found.append)
    assert (world.answers, world.found, world.timers.pending()) == ([], [], 1)
    world.timers.run_due()
    assert world.answers == [(StoreResult.OK, -1), (StoreResult.NODE_EXISTS, 0), (StoreResult.OK, -1)]
    assert len(children(world.store, "/a")) == 5001 and world.found == [StoreResult.OK], "a read sees what was asked for before it"
    first, last = get(world.store, "/a"), get(world.store, "/a/last")
    assert first is not None and last is not None and first.czxid < last.czxid
    world.store.close()
    again = LocalStore(path)
    assert get(again, "/a") == first and len(children(again, "/a")) == 5001
    again.close()


def test_a_large_multi_is_all_or_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Turning(path, monkeypatch)
    world.multi(*LARGE, Create("/b/c"))
    world.timers.run_due()
    assert world.answers == [(StoreResult.NO_NODE, 5001)] and get(world.store, "/a") is None
    world.store.close()


def test_a_large_multi_that_the_disk_refuses_changes_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Turning(path, monkeypatch)
    world.store._shared.durable.journal._database.execute("PRAGMA busy_timeout=1")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    world.multi(*LARGE)
    world.timers.run_due()
    assert world.answers == [(StoreResult.DISK_FAILED, -1)] and get(world.store, "/a") is None
    assert "cannot be written" in caplog.text
    blocker.close()
    world.multi(Create("/a"))
    assert world.answers[1] == (StoreResult.OK, -1)
    world.store.close()


@pytest.mark.parametrize("turns_before", [1, 6, 9])
def test_a_close_in_the_middle_of_a_large_multi_leaves_nothing_of_it(path: str, monkeypatch: pytest.MonkeyPatch, turns_before: int) -> None:
    world = Turning(path, monkeypatch)
    world.multi(*LARGE)
    for _ in range(turns_before):
        world.timers.clock.advance(1)
        world.turns._run()
    assert world.answers == []
    world.store.close()
    world.timers.run_due()
    assert world.answers == [(StoreResult.SESSION_EXPIRED, -1)]
    again = LocalStore(path)
    assert get(again, "/a") is None
    again.close()


class SlowDisk:
    """A store over a disk of which each sync takes so long; its threads work when the test says so."""

    def __init__(self, path: str, sync_ms: int) -> None:
        self.timers, self.threads = ManualTimers(), ManualThreads()
        self.turns = Turns(self.timers.clock, self.timers)
        self.store = LocalStore(path, self.turns, CommitPace(self.threads, self.timers.clock))
        self.journal = self.store._shared.durable.journal
        self.database = self.journal._database = FailingDatabase(self.journal._database)  # type: ignore[assignment]
        self.database.on_commit = lambda: self.timers.clock.advance(self.sync_ms)
        self.sync_ms = sync_ms
        self.answers: list[StoreResult] = []

    def multi(self, *operations: Operation) -> None:
        self.store.multi(operations, lambda outcome: self.answers.append(outcome.result))

    def become_slow(self) -> None:
        self.turns.begin()
        for number in range(LOOKED_AT):
            self.multi(Create(f"/slow-{number}"))
        assert self.answers == [StoreResult.OK] * LOOKED_AT and not self.threads.waiting, "the loop commits until that is known to be slow"
        self.answers.clear()


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_loop_commits_on_a_fast_disk_and_before_it_runs(path: str, has_begun: bool) -> None:
    world = SlowDisk(path, sync_ms=9 if has_begun else 20)
    if has_begun:
        world.turns.begin()
    for number in range(3 * LOOKED_AT):
        world.multi(Create(f"/{number}"))
    assert world.answers == [StoreResult.OK] * 3 * LOOKED_AT and not world.threads.waiting
    world.store.close()


def test_a_thread_commits_on_a_slow_disk_and_others_wait_behind_it(path: str) -> None:
    """The loop waited 20 ms for every change of a client that sent thousands, and all others with it."""
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()
    world.multi(Create("/a"))
    world.multi(Create("/a"))
    world.multi(Create("/a/b"))
    assert world.answers == [] and len(world.threads.waiting) == 1 and world.store._shared.durable.nodes.get("/a") is None
    world.threads.run_one()
    assert world.answers == [StoreResult.OK, StoreResult.NODE_EXISTS] and len(world.threads.waiting) == 1
    world.threads.run_one()
    assert world.answers[2:] == [StoreResult.OK]
    world.store.close()
    again = LocalStore(path)
    assert get(again, "/a/b") is not None
    again.close()


def test_the_loop_commits_again_when_the_disk_is_quick(path: str) -> None:
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()
    world.sync_ms = 1
    world.multi(Create("/a"))
    world.threads.run_one()
    world.multi(Create("/b"))
    assert world.answers == [StoreResult.OK, StoreResult.OK] and not world.threads.waiting
    world.store.close()


def test_a_commit_that_fails_in_a_thread_changes_nothing(path: str) -> None:
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()
    world.multi(Create("/a"))
    world.multi(Create("/b"))
    world.database.failing = ("COMMIT",)
    world.threads.run_one()
    assert world.answers == [StoreResult.DISK_FAILED] and world.store._shared.durable.nodes.get("/a") is None
    world.database.failing = ()
    world.threads.run_one()
    assert world.answers == [StoreResult.DISK_FAILED, StoreResult.OK]
    world.store.close()
    again = LocalStore(path)
    assert get(again, "/a") is None and get(again, "/b") is not None
    again.close()


def test_a_store_that_is_closed_before_its_thread_commits_has_changed_nothing(path: str) -> None:
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()
    world.multi(Create("/a"))
    world.multi(Create("/b"))
    world.store.close()
    world.threads.run_all()
    world.timers.run_due()
    assert world.answers == [StoreResult.SESSION_EXPIRED] * 2
    again = LocalStore(path)
    assert get(again, "/a") is None
    again.close()


def test_a_large_multi_goes_in_turns_also_on_a_slow_disk(path: str) -> None:
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()
    world.multi(*LARGE)
    world.multi(Create("/a/last"))
    while world.timers.run_due() or world.threads.waiting:
        world.threads.run_all()
    assert world.answers == [StoreResult.OK, StoreResult.OK]
    world.store.close()


def test_a_callback_that_raises_does_not_hold_up_what_waits(path: str) -> None:
    world = SlowDisk(path, sync_ms=20)
    world.become_slow()

    def fail(_outcome: Outcome) -> None:
        raise LookupError("of a caller")

    world.store.multi([Create("/a")], fail)  # committed by a thread
    world.store.multi([Create("/a")], fail)  # refused in a turn behind it
    world.multi(Create("/b"))
    with pytest.raises(LookupError):
        world.threads.run_one()
    world.timers.run_due()
    world.threads.run_all()
    assert world.answers == [StoreResult.OK]
    world.store.close()
