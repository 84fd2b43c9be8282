"""Deadlines of many short waits. All waits with the same timeout share one timer.

Most waits end long before their deadline. Beginning and ending a wait costs one entry of a dictionary, where a timer of its own would be
set and cancelled. Of all waits with the same timeout, the oldest expires first, so their timer is only for the oldest one. If that wait has
ended when the timer fires, the timer is set again for the next deadline.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Protocol

from ottla.base.ports import Clock, TimerHandle, Timers

_IDLE_MAX = 16
"""A timeout without a wait keeps its timer only while there are at most this many timeouts. Clients choose timeouts, so there may be many
different timeouts."""


class Expiring(Protocol):
    """One wait."""

    def expire(self) -> None:
        """Called once, when the timeout has passed. The wait has ended then."""


class SameTimeout:
    """All waits with one timeout."""

    __slots__ = ("_deadlines", "_timeout_ms", "due_ms", "timer")

    def __init__(self, deadlines: Deadlines, timeout_ms: int) -> None:
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self.timer: TimerHandle | None = None
        self.due_ms: dict[Expiring, int] = {}
        """The deadline of each wait in monotonic milliseconds, in ascending order."""

    def set_timer(self) -> None:
        self.timer = self._deadlines.timers.call_later(self._timeout_ms, self._fire)

    def end(self, wait: Expiring) -> None:
        """Ends a wait early. Does nothing if it has ended."""
        due_ms = self.due_ms
        due_ms.pop(wait, None)
        if not due_ms and len(self._deadlines.by_timeout) > _IDLE_MAX:
            self._forget()

    def _fire(self) -> None:
        """Expires the due waits. If one fails, the others expire in the next iteration of the loop."""
        now_ms = self._deadlines.clock.monotonic_ms()
        due = list(takewhile(lambda wait: self.due_ms[wait] <= now_ms, self.due_ms))
        try:
            for wait in due:
                if self.due_ms.pop(wait, None) is not None:
                    wait.expire()
        finally:
            self.timer = None
            if self.due_ms:
                next_ms = next(iter(self.due_ms.values()))
                self.timer = self._deadlines.timers.call_later(max(0, next_ms - now_ms), self._fire)
            elif len(self._deadlines.by_timeout) > _IDLE_MAX:
                self._forget()

    def _forget(self) -> None:
        """Ends the timer, because there are many timeouts and this one has no wait."""
        by_timeout = self._deadlines.by_timeout
        if by_timeout.get(self._timeout_ms) is self:
            del by_timeout[self._timeout_ms]
            if self.timer is not None:
                self.timer.cancel()


class Deadlines:
    """All waits of one owner."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.clock = clock
        self.timers = timers
        self.by_timeout: dict[int, SameTimeout] = {}

    def begin(self, wait: Expiring, timeout_ms: int) -> SameTimeout:
        """Begins a wait. Calls its `expire` after `timeout_ms` milliseconds, unless `end` of the result ends it before."""
        same = self.by_timeout.get(timeout_ms)
        if same is None:
            same = self.by_timeout[timeout_ms] = SameTimeout(self, timeout_ms)
        same.due_ms[wait] = self.clock.monotonic_ms() + timeout_ms
        if same.timer is None:
            same.set_timer()
        return same

    def waits(self) -> list[Expiring]:
        """Returns the waits that have not ended."""
        return [wait for same in self.by_timeout.values() for wait in same.due_ms]
