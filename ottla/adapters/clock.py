"""Production clock: the operating system's two clocks in whole milliseconds.

`monotonic_ms` never decreases and is used for every interval; `wall_ms` may jump and is used for timestamps, and for the ages of records,
tokens and other stored things. Both are cheap enough to be read once per request.
"""

from __future__ import annotations

from time import monotonic_ns, perf_counter_ns, time_ns


class SystemClock:
    """`ports.Clock` on this machine."""

    __slots__ = ()
    nanoseconds = staticmethod(perf_counter_ns)  # the function itself, because it is called several times for each request

    def monotonic_ms(self) -> int:
        return monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time_ns() // 1_000_000
