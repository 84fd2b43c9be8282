"""Calls in threads, and what the thread of their owner does with their results."""

from __future__ import annotations

from ottla.client.blocking.background_calls import BackgroundCalls
from ottla.client.blocking.connection import first_ready


def test_a_result_may_give_up_a_call_that_has_ended_too() -> None:
    """A consumer that has lost its membership gives up the look-up of its positions, which may have ended at the same time."""
    calls, taken = BackgroundCalls(), list[int]()
    calls.begin("membership", lambda: 1, lambda _: calls.abandon("positions"))
    calls.begin("positions", lambda: 2, taken.append)
    for key in ("membership", "positions"):
        assert first_ready({key: calls.sources()[key]}, 60.0)
    calls.take_in()
    assert taken == [] and not calls.sources()
