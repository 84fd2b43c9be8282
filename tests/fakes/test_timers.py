"""Manual timers run in a deterministic order, and each function sees the time for which it was set."""

from __future__ import annotations

from ottla.base.ports import Clock, Random, Timers
from tests.fakes import ManualClock, ManualTimers, SeededRandom


def test_functions_run_by_deadline_and_then_by_age() -> None:
    timers = ManualTimers()
    port: Timers = timers
    ran: list[tuple[str, int]] = []

    def note(name: str) -> None:
        ran.append((name, timers.clock.monotonic_ms()))

    start = timers.clock.monotonic_ms()
    port.call_later(10, lambda: note("b"))
    port.call_later(5, lambda: note("a"))
    port.call_later(10, lambda: note("c"))
    port.call_later(7, lambda: note("never")).cancel()
    port.call_later(10.5, lambda: note("d"))
    port.call_soon(lambda: note("now"))
    assert (timers.run_due(), timers.pending()) == (1, 4)
    assert timers.advance(20) == 4
    assert ran == [("now", start), ("a", start + 5), ("b", start + 10), ("c", start + 10), ("d", start + 11)]
    assert timers.clock.monotonic_ms() == start + 20
    assert not timers.advance_to_next()


def test_what_a_function_arms_runs_in_the_same_advance() -> None:
    timers = ManualTimers()
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(timers.clock.monotonic_ms())
        timers.call_later(100, tick)

    timers.call_later(100, tick)
    timers.advance(350)
    assert ticks == [1_100, 1_200, 1_300]
    assert timers.advance_to_next() and ticks[-1] == 1_400
    timers.clock.advance(100)
    assert timers.run_due() == 1


def test_the_wall_jumps_alone() -> None:
    clock = ManualClock(monotonic_ms=5, wall_ms=1_000)
    port: Clock = clock
    clock.advance(10)
    clock.jump_wall(-500)
    assert (port.monotonic_ms(), port.wall_ms()) == (15, 510)


def test_a_seed_repeats_itself() -> None:
    def draw(random: Random) -> tuple[bytes, float, int]:
        return random.token_bytes(8), random.uniform(0, 1), random.randrange(1_000_000)

    assert draw(SeededRandom(7)) == draw(SeededRandom(7)) != draw(SeededRandom(8))
