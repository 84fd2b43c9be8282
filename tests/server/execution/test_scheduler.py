"""The order and the time slices of connections; `test_dispatch.py` has both with requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.loop.turns import Turns
from ottla.server.execution.scheduler import CHEAP_NS, COSTLY_NS, HEAVY_NS, ROUTE_RISE_BITS, Scheduler, moving_cost
from tests.fakes.timers import ManualTimers


def test_an_api_is_costly_after_some_costly_requests_and_a_few_cheap_ones_end_it() -> None:
    cost_ns = 0
    for count in range(1, 10):
        cost_ns = moving_cost(cost_ns, 10 * HEAVY_NS, ROUTE_RISE_BITS)
        assert (cost_ns > COSTLY_NS) == (count > 1), "one alone may be the machine's doing"
    for _ in range(3):
        cost_ns = moving_cost(cost_ns, CHEAP_NS // 10, ROUTE_RISE_BITS)
    assert cost_ns < COSTLY_NS
    for _ in range(10):
        cost_ns = moving_cost(cost_ns, CHEAP_NS // 10, ROUTE_RISE_BITS)
    assert cost_ns == 0


def test_cheap_connections_resume_first_and_costly_ones_in_the_end() -> None:
    timers = ManualTimers()
    turns = Turns(timers.clock, timers, piece_ms=0, is_fair=True)
    turns.begin()
    waiters: Any = SimpleNamespace()
    scheduler = Scheduler(timers.clock, timers, turns, waiters)
    resumed: list[int] = []

    def wait(name: int, cost_ns: int) -> None:
        connection: Any = SimpleNamespace(cost_ns=cost_ns, resume=lambda: resumed.append(name))
        scheduler.resume_later(connection)

    wait(1, HEAVY_NS)
    for name in range(2, 6):
        wait(name, 0)
    timers.run_due()
    assert resumed == [2, 3, 4, 5, 1]
    resumed.clear()
    wait(1, COSTLY_NS)
    for name in range(2, 200):
        wait(name, 0)
    timers.run_due()
    assert 90 < resumed.index(1) < 110, "it is not passed over for ever"
