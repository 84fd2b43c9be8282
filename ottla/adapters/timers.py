"""Production timers: the event loop calls functions in the order of their deadlines.

Event loops count in float seconds, the ports in milliseconds; this module converts them. An exception of a function is passed to the loop's
exception handler, which the server sets. Functions that are pending when the loop closes are dropped.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable

from ottla.base.ports import TimerHandle


class LoopTimers:
    """`ports.Timers` on one event loop; must be called on that loop's own thread."""

    __slots__ = ("_loop",)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, function: Callable[[], object]) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, function)

    def call_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon(function)
