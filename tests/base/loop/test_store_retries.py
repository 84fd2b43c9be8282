"""Retries of requests to the metadata store: after a pause while the store is connected, otherwise as soon as it is connected again; never
in another session."""

from __future__ import annotations

from ottla.base.loop.store_retries import RETRY_MS
from tests.fakes.world import World


class Retrying(World):
    """A metadata store, and a record of the retries."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def again(self, name: str) -> None:
        self.retries.again(lambda: self.runs.append(name))


def test_a_connected_store_is_asked_again_after_a_pause() -> None:
    world = Retrying()
    world.again("a")
    world.timers.advance(RETRY_MS - 1)
    assert world.runs == []
    world.timers.advance(1)
    assert world.runs == ["a"]


def test_a_store_that_is_away_is_asked_when_it_is_back() -> None:
    world = Retrying()
    world.store.disconnect()
    world.again("a")
    world.timers.advance(10 * RETRY_MS)
    assert world.runs == []
    world.store.reconnect()
    assert world.runs == ["a"]


def test_what_waited_in_an_expired_session_is_dropped() -> None:
    world = Retrying()
    world.again("in a pause")
    world.store.disconnect()
    world.again("for the connection")
    world.store.expire()
    world.store.reconnect()
    world.store.renew()
    world.timers.advance(10 * RETRY_MS)
    assert world.runs == []
    world.again("new")
    world.timers.advance(RETRY_MS)
    assert world.runs == ["new"]
