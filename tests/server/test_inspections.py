"""Inspections of records by the worker process: in order for one client and partition, in turn for different clients, and dropped when the
connection closes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.handlers.context import ConnectionInfo
from ottla.server import record_worker
from ottla.server.inspections import REST_MS, Inspections
from ottla.storage.inspection import InspectBatch, Inspected, demands_of
from ottla.storage.record_orders import perform
from ottla.wire.records import Record, encode_batch, read_batch_header
from tests.fakes import ManualClock
from tests.fakes.log_settings import log_settings
from tests.fakes.world import World

CONFIG = log_settings(is_compacted=True)


class InspectionsWorld(World):
    """Inspections with threads that run only when the test lets them."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=1)
        self.inspections = Inspections(self.threads, self.timers)
        self.done: list[str] = []

    def ask(self, client: ConnectionInfo, name: str) -> None:
        self.inspections.ask(client, order(), lambda answer: self.done.append(name))

    def defer(self, client: ConnectionInfo, name: str, first: InspectBatch | None, *, asks_again: int = 0) -> None:
        left = asks_again

        def attempt(answer: Any) -> InspectBatch | None:
            nonlocal left
            if left:
                left -= 1
                return order()
            self.done.append(name)
            return None

        self.inspections.defer(client, "t-0", first, attempt)


def order() -> InspectBatch:
    batch = encode_batch([Record(0, 1, b"k", b"v")])
    demands = demands_of(read_batch_header(batch), CONFIG)
    assert demands is not None
    return InspectBatch(batch, demands)


def connection() -> ConnectionInfo:
    return ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")


@pytest.fixture
def bench() -> InspectionsWorld:
    return InspectionsWorld()


def test_clients_take_turns(bench: InspectionsWorld) -> None:
    greedy, modest = connection(), connection()
    for number in range(4):
        bench.ask(greedy, f"greedy {number}")
    bench.ask(modest, "modest")
    bench.threads.run_all()
    assert bench.done == ["greedy 0", "modest", "greedy 1", "greedy 2", "greedy 3"]


def test_a_line_keeps_its_order(bench: InspectionsWorld) -> None:
    client = connection()
    bench.defer(client, "first", order(), asks_again=1)
    assert (client, "t-0") in bench.inspections.lines
    bench.defer(client, "second", None)
    bench.defer(client, "third", None, asks_again=1)
    bench.defer(client, "fourth", order())
    bench.threads.run_all()
    assert bench.done == ["first", "second", "third", "fourth"]
    assert not bench.inspections.lines
    assert len(bench.threads.record_worker.orders) == 4


def test_what_a_client_waits_for_is_forgotten_with_its_connection(bench: InspectionsWorld) -> None:
    gone, other = connection(), connection()
    bench.defer(gone, "line", order())
    bench.defer(gone, "behind it", None)
    bench.ask(gone, "question")
    bench.ask(other, "other")
    gone.closed()
    assert not bench.inspections.lines
    bench.threads.run_all()
    assert bench.done == ["other"]
    assert len(bench.threads.record_worker.orders) == 2, "the first was under way, the others were never begun"


def test_an_attempt_may_close_its_connection(bench: InspectionsWorld) -> None:
    client = connection()

    def attempt(answer: Any) -> None:
        client.closed()

    bench.inspections.defer(client, "t-0", order(), attempt)
    bench.defer(client, "behind it", None)
    bench.threads.run_all()
    assert not bench.done and not bench.inspections.lines


def test_the_worker_rests_when_it_has_nothing_to_do(bench: InspectionsWorld) -> None:
    bench.ask(connection(), "one")
    bench.threads.run_all()
    bench.timers.advance(REST_MS - 1)
    bench.ask(connection(), "two")
    bench.threads.run_all()
    bench.timers.advance(REST_MS - 1)
    bench.threads.run_all()
    assert bench.threads.record_worker.rests == 0
    bench.timers.advance(1)
    bench.threads.run_all()
    assert bench.threads.record_worker.rests == 1


def test_a_lost_worker_is_an_answer(bench: InspectionsWorld, caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = []
    bench.threads.record_worker.is_lost = True
    bench.inspections.ask(connection(), order(), answers.append)
    bench.threads.run_all()
    assert answers == [None]
    assert "ended before it answered" in caplog.text


def test_nothing_is_answered_after_the_end(bench: InspectionsWorld) -> None:
    bench.ask(connection(), "one")
    bench.inspections.close()
    bench.threads.run_all()
    assert not bench.done and bench.threads.record_worker.is_closed


def test_the_process_performs_what_the_fake_does(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(record_worker, "serve", served.append)
    record_worker.main()
    assert served == [perform]
    assert isinstance(perform(order()), Inspected)
