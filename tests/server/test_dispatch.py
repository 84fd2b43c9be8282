"""Routes: which requests are executed, and which close their connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import WireError
from ottla.server.dispatch import CHEAP_NS, COSTLY_NS, HEAVY_NS, NOTABLE_NS, Dispatcher, for_extended_connections, recent_cost
from tests.fakes.timers import ManualTimers


def test_an_extension_is_unknown_to_a_connection_that_has_not_asked() -> None:
    handled: list[object] = []
    handle = for_extended_connections(20000, lambda _broker, _request, body: handled.append(body))
    request: Any = SimpleNamespace(connection=SimpleNamespace(has_extensions=False))
    with pytest.raises(WireError, match="unknown api key 20000"):
        handle(None, request, "a body")
    assert handled == []
    request.connection.has_extensions = True
    handle(None, request, "a body")
    assert handled == ["a body"]


def test_a_kind_is_costly_after_some_dear_requests_and_a_few_cheap_ones_end_it() -> None:
    cost_ns = 0
    for count in range(1, 10):
        cost_ns = recent_cost(cost_ns, 10 * HEAVY_NS, 4)
        assert (cost_ns > COSTLY_NS) == (count > 4), "one alone may be the machine's doing"
    for _ in range(3):
        cost_ns = recent_cost(cost_ns, CHEAP_NS // 10, 4)
    assert cost_ns < COSTLY_NS
    for _ in range(10):
        cost_ns = recent_cost(cost_ns, CHEAP_NS // 10, 4)
    assert cost_ns == 0


def test_of_connections_that_wait_cheap_ones_go_on_first_and_dear_ones_in_the_end() -> None:
    timers = ManualTimers()
    broker: Any = SimpleNamespace(clock=timers.clock, timers=timers)
    dispatcher = Dispatcher(broker, Any)  # type: ignore[arg-type]
    resumed: list[int] = []

    def wait(name: int, cost_ns: int) -> None:
        connection: Any = SimpleNamespace(cost_ns=cost_ns, resume=lambda: resumed.append(name))
        dispatcher.resume_later(connection)

    wait(1, HEAVY_NS)
    for name in range(2, 6):
        wait(name, 0)
    timers.run_due()
    assert resumed == [2, 3, 4, 5, 1]
    resumed.clear()
    wait(1, NOTABLE_NS)
    for name in range(2, 200):
        wait(name, 0)
    timers.run_due()
    assert 90 < resumed.index(1) < 110, "it is not passed over for ever"
