"""The pauses between retries, in seconds: they double from `FIRST_S` to `MAX_S`. A deadline ends the retries."""

from __future__ import annotations

FIRST_S = 0.02
MAX_S = 0.5


class Backoff:
    """The pauses between the retries of one operation. `deadline` and `now` are seconds of the same monotonic clock."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._next_s = FIRST_S

    def is_exhausted(self, now: float) -> bool:
        """Whether the next retry would begin after the deadline."""
        return now + self._next_s > self.deadline

    def next_s(self) -> float:
        pause_s = self._next_s
        self._next_s = min(MAX_S, pause_s * 2)
        return pause_s
