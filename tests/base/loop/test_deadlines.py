"""Deadlines: waits with the same timeout share a timer, and each wait expires once, at its own time."""

from __future__ import annotations

import gc
import weakref

import pytest

from ottla.base.errors import StorageError
from ottla.base.loop.deadlines import Deadlines, SameTimeout
from tests.fakes.timers import ManualTimers


class Wait:
    """A wait that records the time of its expiry."""

    def __init__(self, expired: list[tuple[str, int]], timers: ManualTimers, name: str = "") -> None:
        self.expired, self.timers, self.name = expired, timers, name

    def expire(self) -> None:
        self.expired.append((self.name, self.timers.clock.monotonic_ms()))


class World:
    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.deadlines = Deadlines(self.timers.clock, self.timers)
        self.expired: list[tuple[str, int]] = []
        self.start_ms = self.timers.clock.monotonic_ms()

    def begin(self, name: str, timeout_ms: int) -> tuple[Wait, SameTimeout]:
        wait = Wait(self.expired, self.timers, name)
        return wait, self.deadlines.begin(wait, timeout_ms)

    def expired_after(self) -> list[tuple[str, int]]:
        return [(name, at_ms - self.start_ms) for name, at_ms in self.expired]


@pytest.fixture
def world() -> World:
    return World()


def test_each_wait_expires_at_its_own_deadline(world: World) -> None:
    world.begin("first", 100)
    world.timers.advance(30)
    world.begin("second", 100)
    world.begin("short", 10)
    world.timers.advance(1000)
    assert world.expired_after() == [("short", 40), ("first", 100), ("second", 130)]
    assert world.deadlines.waits() == [] and world.timers.pending() == 0


def test_a_wait_that_ended_does_not_expire_and_keeps_no_timer_for_later(world: World) -> None:
    first, same = world.begin("first", 100)
    world.begin("second", 100)
    same.end(first)
    same.end(first)
    assert len(world.deadlines.waits()) == 1
    world.timers.advance(100)
    assert world.expired_after() == [("second", 100)] and world.timers.pending() == 0


def test_a_thousand_short_waits_set_few_timers(world: World) -> None:
    for _ in range(1000):
        wait, same = world.begin("", 500)
        world.timers.advance(1)
        same.end(wait)
    assert world.expired == [] and world.timers._made <= 3


def test_a_wait_that_is_ended_by_another_one_at_the_same_time_does_not_expire(world: World) -> None:
    other, same = None, None

    class Ending(Wait):
        def expire(self) -> None:
            super().expire()
            assert same is not None and other is not None
            same.end(other)

    same = world.deadlines.begin(Ending(world.expired, world.timers, "ending"), 50)
    other, _ = world.begin("other", 50)
    world.timers.advance(200)
    assert world.expired_after() == [("ending", 50)]


def test_a_failed_wait_leaves_the_others_to_the_next_iteration(world: World) -> None:
    class Failing(Wait):
        def expire(self) -> None:
            super().expire()
            raise StorageError("cannot read", "/data")

    world.deadlines.begin(Failing(world.expired, world.timers, "failing"), 50)
    world.begin("other", 50)
    with pytest.raises(StorageError):
        world.timers.advance(50)
    world.timers.run_due()
    assert world.expired_after() == [("failing", 50), ("other", 50)]


def test_a_wait_that_begins_again_as_it_expires_does_not_hold_up_the_loop(world: World) -> None:
    class Again(Wait):
        def expire(self) -> None:
            super().expire()
            if len(self.expired) < 4:
                world.deadlines.begin(self, 0)

    world.deadlines.begin(Again(world.expired, world.timers, ""), 0)
    assert world.timers.run_due() == 4, "each time in an iteration of its own"
    assert len(world.expired) == 4


def test_a_wait_that_begins_as_another_expires_does_not_delay_the_next(world: World) -> None:
    class Beginning(Wait):
        def expire(self) -> None:
            super().expire()
            world.begin("new", 100)

    world.deadlines.begin(Beginning(world.expired, world.timers, "beginning"), 100)
    world.timers.advance(50)
    world.begin("next", 100)
    world.timers.advance(500)
    assert world.expired_after() == [("beginning", 100), ("next", 150), ("new", 200)]


def test_different_timeouts_of_ended_waits_keep_few_timers(world: World) -> None:
    """Clients may choose timeouts of weeks and disconnect, so timers of ended waits must not stay."""
    for number in range(1000):
        wait, same = world.begin("", 1_000_000_000 + number)
        same.end(wait)
    assert len(world.deadlines.by_timeout) <= 17 and world.timers.pending() <= 17
    wait, same = world.begin("still", 1_000_000_000)
    world.timers.advance(2_000_000_000)
    assert [name for name, _ in world.expired] == ["still"]


def test_an_ended_wait_is_freed_at_once(world: World) -> None:
    wait, same = world.begin("", 100)
    same.end(wait)
    known = weakref.ref(wait)
    gc.disable()
    try:
        del wait
        assert known() is None
    finally:
        gc.enable()
