"""How long to wait before the next try: doubling from `FIRST_S` to `MAX_S`, until a deadline."""

from __future__ import annotations

FIRST_S = 0.02
MAX_S = 0.5


class Backoff:
    """The pauses of one series of tries. `deadline` and `now` are of one monotonic clock, in seconds."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._next_s = FIRST_S

    def is_exhausted(self, now: float) -> bool:
        """Whether the next try would begin after the deadline."""
        return now + self._next_s > self.deadline

    def next_s(self) -> float:
        pause_s = self._next_s
        self._next_s = min(MAX_S, pause_s * 2)
        return pause_s
