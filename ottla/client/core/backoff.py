"""The deadline of a call, and the pauses between its retries, in seconds. The pauses double from `FIRST_S` to `MAX_S`."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

FIRST_S = 0.02
MAX_S = 0.5


class Deadline:
    """The end of a call: `limit_s` seconds after it began, or after its last progress (`renew`). `now` is a monotonic clock in seconds.

    A call makes one deadline and passes it to all its steps, so the steps together take no longer than `limit_s`.
    """

    def __init__(self, limit_s: float, now: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._now = now
        self._end = now() + limit_s

    def left_s(self) -> float:
        """Returns the remaining time; negative after the deadline."""
        return self._end - self._now()

    def left_ms(self) -> int:
        """Returns 90 % of the remaining time in milliseconds, at least 1: the time that a broker may take to answer."""
        return max(1, int(self.left_s() * 900))

    def renew(self) -> None:
        """Gives the call its whole time again, because it has made progress."""
        self._end = self._now() + self._limit_s


class Backoff:
    """The pauses between the retries of one call. Without a deadline the retries never end."""

    def __init__(self, deadline: Deadline | None) -> None:
        self._deadline = deadline
        self._next_s = FIRST_S

    def is_exhausted(self) -> bool:
        """Whether the next retry would begin after the deadline."""
        return self._next_s > (inf if self._deadline is None else self._deadline.left_s())

    def next_s(self) -> float:
        pause_s = self._next_s
        self._next_s = min(MAX_S, pause_s * 2)
        return pause_s
