"""Production timers: the event loop runs the function later, in the order of deadlines.

Loops count in float seconds, the ports in milliseconds; the conversion lives here and nowhere else. A function that raises is the
loop's exception handler's business, which the server sets. Nothing here outlives the loop: what is still pending when it closes is dropped.
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
