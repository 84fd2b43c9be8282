"""The faults of the ZooKeeper model: expiry, lost connections, unknown outcomes, late writes."""

from __future__ import annotations

import pytest

from ottla.base.ports import Create, Outcome, SessionEvent, Set, StoreNode, StoreResult, WatchEvent
from tests.fakes.memory_store import Lease, MemoryStore, ZooKeeperModel
from tests.fakes.timers import ManualTimers


def write(store: MemoryStore, path: str) -> list[StoreResult]:
    answers: list[StoreResult] = []
    store.multi([Create(path)], lambda outcome: answers.append(outcome.result))
    return answers


def is_there(store: MemoryStore, path: str) -> bool:
    return path in store.nodes()


def test_an_expired_session_loses_its_nodes_and_watches_and_may_be_renewed() -> None:
    model = ZooKeeperModel()
    one, other = model.session(), model.session()
    events: list[object] = []
    one.listen(events.append)
    one.multi([Create("/e", ephemeral=True)], lambda outcome: None)
    other.exists("/e", lambda result: None, watch=events.append)
    one.exists("/x", lambda result: None, watch=events.append)
    old = one.session_id()
    one.expire()
    assert events == [WatchEvent.DELETED, WatchEvent.LOST, SessionEvent.EXPIRED]
    assert not is_there(other, "/e") and write(one, "/n") == [StoreResult.SESSION_EXPIRED]
    one.renew()
    assert events[-1] is SessionEvent.NEW_SESSION and one.session_id() != old
    assert write(one, "/n") == [StoreResult.OK]


def test_a_session_that_expires_while_it_is_cut_off_learns_it_when_it_is_back() -> None:
    model = ZooKeeperModel()
    store = model.session()
    events: list[SessionEvent] = []
    store.listen(events.append)
    store.disconnect()
    store.expire()
    assert events == [SessionEvent.SUSPENDED] and write(store, "/n") == [StoreResult.CONNECTION_LOST]
    store.reconnect()
    assert events == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED] and write(store, "/n") == [StoreResult.SESSION_EXPIRED]


@pytest.mark.parametrize("is_applied", [False, True])
def test_writes_under_way_when_the_connection_breaks_are_unknown(is_applied: bool) -> None:
    timers = ManualTimers()
    store = ZooKeeperModel().session(timers)
    answers = write(store, "/n")
    reads: list[tuple[StoreResult, StoreNode | None]] = []
    store.get("/n", lambda *answer: reads.append(answer))
    store.disconnect(is_applied=is_applied)
    timers.advance(10)
    assert (answers, reads) == ([StoreResult.UNKNOWN], [(StoreResult.CONNECTION_LOST, None)])
    assert is_there(store, "/n") is is_applied


def test_an_answer_on_its_way_back_is_lost_with_the_connection() -> None:
    timers = ManualTimers()
    store = ZooKeeperModel().session(timers, delay_ms=lambda: 5)
    answers = write(store, "/n")
    timers.advance(7)
    assert is_there(store, "/n") and answers == []
    store.disconnect()
    timers.advance(10)
    assert answers == [StoreResult.UNKNOWN]


def test_a_late_write_happens_before_the_next_one_of_its_session() -> None:
    model = ZooKeeperModel()
    one, other = model.session(), model.session()
    one.fail_next(StoreResult.UNKNOWN, is_late=True)
    assert write(one, "/n") == [StoreResult.UNKNOWN]
    assert write(other, "/m") == [StoreResult.OK] and not is_there(other, "/n")
    answers: list[Outcome] = []
    one.multi([Set("/n", b"")], answers.append)
    assert answers == [Outcome(StoreResult.OK)]


def test_a_late_write_of_an_expired_session_never_happens() -> None:
    store = ZooKeeperModel().session()
    store.fail_next(StoreResult.UNKNOWN, is_late=True)
    write(store, "/n")
    store.expire()
    store.renew()
    write(store, "/m")
    assert not is_there(store, "/n") and is_there(store, "/m")


def test_reads_fail_when_the_test_says_so() -> None:
    store = MemoryStore()
    answers: list[StoreResult] = []
    store.fail_next_read()
    store.exists("/n", answers.append)
    store.exists("/n", answers.append)
    assert answers == [StoreResult.CONNECTION_LOST, StoreResult.NO_NODE]


def test_a_lease_counts_from_the_sending_of_the_last_answered_request() -> None:
    timers = ManualTimers()
    store = ZooKeeperModel().session(timers, delay_ms=lambda: 10, lease=Lease(timers.clock, 6000))
    start_ms = timers.clock.monotonic_ms()
    timers.advance(1000)
    assert store.lease_ends_ms() == start_ms + 6000, "the session's own request at the start was sent then"
    write(store, "/n")
    timers.advance(19)
    assert store.lease_ends_ms() == start_ms + 6000, "sent, not answered yet"
    timers.advance(1)
    assert store.lease_ends_ms() == start_ms + 1000 + 6000
    timers.advance(4000)
    assert store.lease_ends_ms() == start_ms + 4000 + 6000, "the session asks by itself every third of its timeout"
    store.disconnect()
    timers.advance(60_000)
    assert store.lease_ends_ms() == start_ms + 4000 + 6000


def test_without_a_clock_a_lease_never_ends() -> None:
    assert MemoryStore().lease_ends_ms() == float("inf")
