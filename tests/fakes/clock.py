"""A clock that only the test moves. The wall clock moves with the monotonic clock; `jump_wall` sets it to another time, as an operator or a
time server does.
"""

from __future__ import annotations

WALL_START_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z: a date that is plainly not today


class ManualClock:
    """`ports.Clock` that only `advance` moves, never backwards."""

    def __init__(self, monotonic_ms: int = 1_000, wall_ms: int = WALL_START_MS) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_offset_ms = wall_ms - monotonic_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._monotonic_ms + self._wall_offset_ms

    def nanoseconds(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, ms: int) -> None:
        assert ms >= 0, f"a monotonic clock cannot go back by {-ms} ms"
        self._monotonic_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Sets the wall clock forward, or back if `ms` is negative; intervals are not affected."""
        self._wall_offset_ms += ms
