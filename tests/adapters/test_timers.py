"""The production timers on a real loop: order, cancelling, and milliseconds that are milliseconds."""

from __future__ import annotations

import asyncio
import time

from ottla.adapters.timers import LoopTimers
from ottla.base.ports import Timers


def test_functions_run_in_the_order_of_their_deadlines() -> None:
    async def run() -> list[str]:
        ran: list[str] = []
        done = asyncio.Event()
        timers: Timers = LoopTimers(asyncio.get_running_loop())
        timers.call_later(20, lambda: ran.append("later"))
        timers.call_later(21, done.set)
        timers.call_later(5, lambda: ran.append("sooner"))
        timers.call_soon(lambda: ran.append("at once"))
        cancelled = timers.call_later(1, lambda: ran.append("never"))
        cancelled.cancel()
        await done.wait()
        return ran

    assert asyncio.run(run()) == ["at once", "sooner", "later"]


def test_a_delay_is_counted_in_milliseconds() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        start = time.monotonic()
        LoopTimers(loop).call_later(30, done.set)
        await done.wait()
        return time.monotonic() - start

    assert 0.029 <= asyncio.run(run()) < 10  # ten seconds: a busy machine is late, but thirty seconds would be the wrong unit
