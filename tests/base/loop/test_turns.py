"""Long work divided among turns of the loop: small work is done at once, pieces of work run in the order of the requests, and other work of
the loop runs between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.base.loop.turns import PIECE_MS, Turns
from tests.fakes.world import World


class TurnsWorld(World):
    def __init__(self, *, is_bounded: bool = True) -> None:
        self.turns = Turns(self.clock, self.timers)
        self.done: list[str] = []
        if is_bounded:
            self.turns.begin()

    def work(self, name: str, count: int, cost_ms: int = 1) -> Iterator[None]:
        for number in range(count):
            self.clock.advance(cost_ms)
            self.done.append(f"{name}{number}")
            yield

    def finish(self) -> int:
        """Runs all remaining turns and returns their number."""
        turns = 0
        while self.timers.advance_to_next():
            turns += 1
        return turns


def test_small_work_is_done_before_add_returns() -> None:
    world = TurnsWorld()
    world.turns.add(world.work("a", 3))
    world.turns.call_when_idle(lambda: world.done.append("idle"))
    assert world.done == ["a0", "a1", "a2", "idle"] and world.turns.is_idle and not world.timers.pending()


def test_long_work_leaves_the_loop_to_others_between_its_pieces() -> None:
    world = TurnsWorld()
    world.turns.add(world.work("a", 3 * PIECE_MS))
    assert len(world.done) == PIECE_MS and not world.turns.is_idle
    world.timers.call_soon(lambda: world.done.append("another"))
    assert world.finish() == 3, "two more pieces, and a look that finds nothing left"
    assert world.done.index("another") == 2 * PIECE_MS and len(world.done) == 3 * PIECE_MS + 1 and world.turns.is_idle


def test_later_work_waits_its_turn_however_small() -> None:
    world = TurnsWorld()
    world.turns.add(world.work("a", 2, PIECE_MS))
    world.turns.call_when_idle(lambda: world.done.append("first idle"))
    world.turns.add(world.work("b", 1))
    world.turns.call_when_idle(lambda: world.done.append("all idle"))
    assert world.done == ["a0"]
    world.finish()
    assert world.done == ["a0", "a1", "first idle", "b0", "all idle"]


def test_a_step_may_ask_for_more() -> None:
    world = TurnsWorld()

    def steps() -> Iterator[None]:
        world.turns.add(world.work("inner", 1))
        world.turns.call_when_idle(lambda: world.done.append("idle"))
        world.done.append("outer")
        yield

    world.turns.add(steps())
    assert world.done == ["outer", "inner0", "idle"]


def test_until_it_begins_nothing_is_bounded() -> None:
    world = TurnsWorld(is_bounded=False)
    world.turns.add(world.work("a", 5, PIECE_MS))
    assert len(world.done) == 5 and world.turns.is_idle
    world.turns.call_next(lambda: world.done.append("next"))
    assert world.done[5:] == ["next"]
    world.turns.begin()
    world.turns.call_next(lambda: world.done.append("later"))
    assert world.done[5:] == ["next"]
    world.finish()
    assert world.done[5:] == ["next", "later"]


def test_failed_work_is_dropped_and_the_rest_goes_on() -> None:
    world = TurnsWorld()

    def failing() -> Iterator[None]:
        world.clock.advance(PIECE_MS)
        yield
        raise ValueError("broken")

    world.turns.add(failing())
    world.turns.add(world.work("b", 1))
    with pytest.raises(ValueError, match="broken"):
        world.timers.advance_to_next()
    world.finish()
    assert world.done == ["b0"] and world.turns.is_idle
