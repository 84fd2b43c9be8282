"""The watch over the live brokers: it reports all of them at the start and after each change in the metadata store, even if a read
fails."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.loop.store_retries import RETRY_MS, StoreRetries
from ottla.base.ports import Create, Delete, StoreResult
from ottla.controller.broker_watch import BrokerWatch
from ottla.controller.damage_notes import DamageNotes
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore
from tests.fakes.world import World


class BrokerWatchWorld(World):
    """A watch over one metadata store. Each broker registers in a session of its own."""

    def __init__(self) -> None:
        self.store.put(f"{znodes.BROKER_IDS}", b"")
        self.seen: list[dict[int, BrokerMetadata]] = []
        self.watch = BrokerWatch(self.store, self.retries, DamageNotes(), self.seen.append)

    def register(self, broker_id: int, data: bytes | None = None) -> MemoryStore:
        """Registers a broker and returns its session."""
        broker = BrokerMetadata(broker_id=broker_id, endpoints={"PLAINTEXT": (f"b{broker_id}", 9092)}, rack="r")
        session = self.model.session()
        registered = znodes.broker_bytes(broker, {"PLAINTEXT": "PLAINTEXT"}, 0) if data is None else data
        session.multi([Create(znodes.broker_path(broker_id), registered, ephemeral=True)], lambda outcome: None)
        return session

    def shown(self) -> list[list[int]]:
        return [sorted(found) for found in self.seen]


def test_the_brokers_that_are_there_at_the_start() -> None:
    world = BrokerWatchWorld()
    world.register(2)
    world.register(10)
    world.watch.start()
    [found] = world.seen
    assert sorted(found) == [2, 10]
    assert (found[2].endpoints, found[2].rack) == ({"PLAINTEXT": ("b2", 9092)}, "r")
    assert found[2].epoch == world.store.nodes()[znodes.broker_path(2)].czxid < found[10].epoch


def test_no_brokers_are_news_as_well() -> None:
    world = BrokerWatchWorld()
    world.watch.start()
    assert world.seen == [{}]


def test_each_change_shows_all_brokers() -> None:
    world = BrokerWatchWorld()
    world.watch.start()
    first = world.register(1)
    world.register(2)
    first.expire()
    assert world.shown() == [[], [1], [1, 2], [2]]


def test_a_broker_that_comes_back_has_another_epoch() -> None:
    world = BrokerWatchWorld()
    world.watch.start()
    world.register(1).expire()
    world.register(1)
    assert world.shown() == [[], [1], [], [1]] and world.seen[1][1].epoch < world.seen[3][1].epoch


@pytest.mark.parametrize("name", ["x", "-1", "\u0661", "1x"])
def test_nodes_that_are_no_broker_are_passed_over(name: str) -> None:
    world = BrokerWatchWorld()
    world.store.put(f"{znodes.BROKER_IDS}/{name}", b"{}")
    world.register(1)
    world.watch.start()
    assert world.shown() == [[1]]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"endpoints": ["nonsense"]}', b"\xff"])
def test_a_damaged_registration_is_passed_over(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWatchWorld()
    world.register(1, data)
    world.register(2)
    world.watch.start()
    assert world.shown() == [[2]] and "/brokers/ids/1" in caplog.text


def test_a_read_that_fails_is_repeated_whole() -> None:
    world = BrokerWatchWorld()
    world.register(1)
    world.store.fail_next_read(StoreResult.CONNECTION_LOST)
    world.watch.start()
    assert world.seen == []
    world.timers.advance(RETRY_MS)
    assert world.shown() == [[1]]


def test_after_a_break_of_the_connection_the_brokers_are_read_again() -> None:
    world = BrokerWatchWorld()
    world.watch.start()
    world.store.disconnect()
    world.register(1)
    assert world.shown() == [[]]
    world.store.reconnect()
    world.register(2)
    assert world.shown() == [[], [1], [1, 2]]


def test_a_stopped_watch_shows_nothing_more() -> None:
    world = BrokerWatchWorld()
    world.watch.start()
    world.watch.stop()
    world.register(1)
    assert world.shown() == [[]]
    world.watch.start()
    assert world.shown() == [[], [1]]


def test_a_stop_ends_a_retry_too() -> None:
    world = BrokerWatchWorld()
    world.store.fail_next_read(StoreResult.CONNECTION_LOST)
    world.watch.start()
    world.watch.stop()
    world.timers.advance(10 * RETRY_MS)
    assert world.seen == []


def test_a_broker_that_goes_while_it_is_read_is_not_shown() -> None:
    """Here requests to the store take time: the broker's node is removed after the read of the names, before the read of the node."""
    world = BrokerWatchWorld()
    timed = world.model.session(world.timers)
    watch = BrokerWatch(timed, StoreRetries(timed, world.timers), DamageNotes(), world.seen.append)
    world.register(1)
    world.register(2)
    watch.start()
    world.timers.advance(1)
    world.model.session().multi([Delete(znodes.broker_path(1))], lambda outcome: None)
    world.timers.advance(100)
    assert world.shown()[-1] == [2] and all(1 not in found for found in world.seen)
