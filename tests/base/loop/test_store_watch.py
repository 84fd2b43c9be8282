"""A procedure that reads the store again after each change, each failed read and each lost connection."""

from __future__ import annotations

from ottla.base.loop.procedure import Procedure
from ottla.base.loop.store_reads import list_children, read_in_order
from ottla.base.loop.store_retries import RETRY_MS
from ottla.base.loop.store_watch import StoreWatch
from ottla.base.ports import Create, Delete, Operation, StoreResult, Watch
from tests.fakes.memory_store import MemoryStore
from tests.fakes.world import World


class StoreWatchWorld(World):
    """Follows the children of `/a` and their data."""

    def __init__(self, *, is_timed: bool = False) -> None:
        self.other: MemoryStore = self.model.session()
        self.write(Create("/a"), Create("/a/b", b"B"))
        self.store = self.model.session(self.timers) if is_timed else self.model.session()
        self.seen: list[list[bytes]] = []
        self.watch = StoreWatch(self.retries, self.read)

    def read(self, watch: Watch) -> Procedure[None]:
        names = yield from list_children(self.store, "/a", watch)
        nodes = yield from read_in_order(self.store, [f"/a/{name}" for name in names or ()])
        self.seen.append([node.data for node in nodes if node is not None])

    def write(self, *operations: Operation) -> None:
        self.other.multi(operations, lambda _outcome: None)


def test_it_reads_at_the_start_and_after_each_change_until_it_is_stopped() -> None:
    world = StoreWatchWorld()
    world.watch.start()
    world.write(Create("/a/c", b"C"))
    world.write(Delete("/a/b"))
    assert world.seen == [[b"B"], [b"B", b"C"], [b"C"]]
    world.watch.stop()
    world.write(Create("/a/d", b"D"))
    assert len(world.seen) == 3
    world.watch.start()
    assert world.seen[3] == [b"C", b"D"]


def test_a_change_during_a_reading_cancels_it() -> None:
    world = StoreWatchWorld(is_timed=True)
    world.watch.start()
    world.timers.advance(1)
    world.write(Create("/a/c", b"C"))
    assert world.seen == []
    world.timers.advance(20)
    assert world.seen == [[b"B", b"C"]]


def test_a_failed_read_is_repeated_after_a_pause_except_in_an_expired_session() -> None:
    world = StoreWatchWorld()
    world.store.fail_next_read()
    world.watch.start()
    assert world.seen == []
    world.timers.advance(RETRY_MS)
    assert world.seen == [[b"B"]]
    world.store.fail_next_read(StoreResult.SESSION_EXPIRED)
    world.watch.start()
    world.timers.advance(10 * RETRY_MS)
    assert world.seen == [[b"B"]]


def test_a_lost_connection_makes_it_read_once_more_when_it_is_back() -> None:
    world = StoreWatchWorld()
    world.watch.start()
    world.store.disconnect()
    world.write(Create("/a/c", b"C"))
    world.timers.advance(10 * RETRY_MS)
    assert world.seen == [[b"B"]]
    world.store.reconnect()
    assert world.seen == [[b"B"], [b"B", b"C"]]
