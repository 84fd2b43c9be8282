"""Time that a test moves: the order and the times of timers, repeating timers, work in threads, a clock that stands still."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from ottla.adapters import movable_time
from ottla.adapters.movable_time import STEPS, CountedThreads, MovableTime

T = TypeVar("T")
WEEK_MS = 7 * 86_400_000


def run(work: Callable[[MovableTime], Awaitable[T]], state: Sequence[int | None] = (0, None)) -> T:
    async def main() -> T:
        loop = asyncio.get_running_loop()
        threads = CountedThreads(loop)
        try:
            return await work(MovableTime(loop, threads, state))
        finally:
            threads.close()

    return asyncio.run(main())


def test_timers_fire_in_the_order_of_their_deadlines_each_at_its_own_time() -> None:
    async def work(moved: MovableTime) -> list[tuple[str, int]]:
        moved.freeze()
        start, fired = moved.monotonic_ms(), []
        for name, delay_ms in (("second", 20_000), ("third", 20_001), ("first", 500), ("later", 60_001)):
            moved.call_later(delay_ms, lambda name=name: fired.append((name, moved.monotonic_ms() - start)))  # type: ignore[misc]
        moved.call_later(1_000, lambda: fired.append(("never", 0))).cancel()
        await moved.advance(60_000)
        assert moved.monotonic_ms() - start == 60_000
        return fired

    assert run(work) == [("first", 500), ("second", 20_000), ("third", 20_001)]


def test_a_timer_that_another_sets_fires_within_the_span() -> None:
    async def work(moved: MovableTime) -> list[str]:
        fired: list[str] = []

        def first() -> None:
            fired.append("first")
            moved.call_later(5_000, lambda: fired.append("second"))

        moved.call_later(1_000, first)
        moved.call_later(30_000, lambda: fired.append("third"))
        await moved.advance(60_000)
        return fired

    assert run(work) == ["first", "second", "third"]


def test_repeating_timers_take_a_bounded_number_of_steps_in_any_span() -> None:
    async def work(moved: MovableTime) -> int:
        fired = 0

        def again() -> None:
            nonlocal fired
            fired += 1
            moved.call_later(5_000, again)

        again()
        await moved.advance(52 * WEEK_MS)
        return fired

    assert STEPS // 2 < run(work) <= STEPS + 2


def test_work_in_threads_has_ended_before_time_moves_on() -> None:
    async def work(moved: MovableTime) -> list[int]:
        moved.freeze()
        start, seen = moved.monotonic_ms(), []

        def begin() -> None:
            moved._threads.run(lambda: time.sleep(0.02), lambda _: seen.append(moved.monotonic_ms() - start))

        moved.call_later(10_000, begin)
        await moved.advance(WEEK_MS)
        return seen

    (done_at_ms,) = run(work)
    assert 10_000 <= done_at_ms <= 10_000 + WEEK_MS // STEPS


def test_the_loop_sleeps_while_work_in_threads_is_awaited() -> None:
    async def work(moved: MovableTime) -> int:
        passes = 0

        def count() -> None:
            nonlocal passes
            passes += 1

        loop = asyncio.get_running_loop()
        real = loop._run_once  # type: ignore[attr-defined]
        loop._run_once = lambda: (count(), real())  # type: ignore[attr-defined]
        moved.call_later(1_000, lambda: moved._threads.run(lambda: time.sleep(0.2), lambda _: None))
        await moved.advance(2_000)
        return passes

    assert run(work) < 50


def test_work_that_takes_too_long_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(movable_time, "SETTLE_SECONDS_MAX", 0.01)

    async def work(moved: MovableTime) -> int:
        is_released = threading.Event()
        moved.call_later(1_000, lambda: moved._threads.run(is_released.wait, lambda _: None))
        await moved.advance(1_001)
        try:
            return moved._threads.pending
        finally:
            is_released.set()

    assert run(work) == 1


def test_an_exception_of_a_timer_is_the_loops_and_time_moves_on() -> None:
    async def work(moved: MovableTime) -> tuple[list[object], list[str]]:
        errors: list[object] = []
        fired: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(type(context["exception"])))
        moved.call_later(1_000, lambda: {}["absent"])  # type: ignore[misc]
        moved.call_later(2_000, lambda: fired.append("next"))
        await moved.advance(10_000)
        return errors, fired

    assert run(work) == ([KeyError], ["next"])


def test_an_unmoved_clock_runs_with_the_machines_and_its_timers_fire() -> None:
    async def work(moved: MovableTime) -> None:
        assert abs(moved.wall_ms() - time.time() * 1000) < 1_000
        fired = asyncio.Event()
        moved.call_later(5, fired.set)
        await asyncio.wait_for(fired.wait(), 30)
        sooner, later = asyncio.Event(), asyncio.Event()
        moved.call_later(60_000, later.set)
        moved.call_later(1, sooner.set)
        await asyncio.wait_for(sooner.wait(), 30)
        assert not later.is_set()

    run(work)


def test_a_frozen_clock_stands_still_and_runs_on_from_there() -> None:
    async def work(moved: MovableTime) -> None:
        fired = asyncio.Event()
        moved.freeze()
        moved.call_later(1, fired.set)
        before = moved.monotonic_ms()
        await asyncio.sleep(0.03)
        assert moved.monotonic_ms() == before and not fired.is_set()
        moved.freeze(is_frozen=False)
        await asyncio.wait_for(fired.wait(), 30)

    run(work)


def test_orders_over_a_socket_and_what_is_refused() -> None:
    async def work(moved: MovableTime) -> list[Any]:
        ours, theirs = socket.socketpair()
        serving = asyncio.ensure_future(moved.serve(theirs))
        reader, writer = await asyncio.open_connection(sock=ours)

        async def asked(order: dict[str, Any]) -> Any:
            writer.write(json.dumps(order).encode() + b"\n")
            return json.loads(await reader.readline())

        start = (await asked({"freeze": True}))["wall_ms"]
        moved_ms = (await asked({"advance_ms": 5_000}))["wall_ms"] - start
        errors = [(await asked({"advance_ms": span}))["error"] for span in (-1, 2**60)]
        state = (await asked({}))["state"]
        writer.close()
        await serving
        return [moved_ms, state[0], errors]

    assert run(work) == [
        5_000,
        5_000,
        [f"cannot advance by {span} ms: time only moves forward, at most ten years at once" for span in (-1, 2**60)],
    ]


def test_a_process_that_starts_again_goes_on_where_the_clock_stood() -> None:
    async def move(moved: MovableTime) -> Any:
        return await moved._answer(b'{"freeze": true, "advance_ms": 86400000}')

    async def look(moved: MovableTime) -> tuple[int, bool]:
        return moved.wall_ms(), moved.is_frozen

    before = run(move)
    after, is_frozen = run(look, before["state"])
    assert is_frozen and abs(after - before["wall_ms"]) < 60_000 and after > time.time() * 1000 + 80_000_000
