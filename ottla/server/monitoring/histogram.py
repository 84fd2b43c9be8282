"""Histograms of durations. Recording a duration costs one addition.

Bucket n counts durations of n bits, 2^(n-1) <= nanoseconds < 2^n; so a duration is recorded by `buckets[nanoseconds.bit_length()] += 1`. A
quantile is interpolated within its bucket. It is wrong by a factor of less than two, because the upper bound of a bucket is twice its lower
bound. So a dashboard shows whether a request takes 50 microseconds or 50 milliseconds.

`Recent` turns counts since the start into counts of the last minutes, by keeping earlier readings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

BUCKETS = 65
"""One bucket for each number of bits of a 64-bit number of nanoseconds, and one for 0."""

WINDOW_SECONDS = 300.0
SNAPSHOTS_MAX = 32
"""Maximum number of readings kept: one every 10 seconds."""


def new_buckets() -> list[int]:
    return [0] * BUCKETS


def add_up(rows: Iterable[Sequence[int]]) -> list[int]:
    """Returns the sum of several histograms by bucket; an empty histogram for none."""
    total = [sum(column) for column in zip(*rows, strict=True)]
    return total or new_buckets()


def quantile_ns(buckets: Sequence[int], share: float) -> float:
    """Returns the quantile `share` (0 to 1) of the durations; 0 if there are none."""
    wanted = share * sum(buckets)
    if wanted <= 0:
        return 0.0
    below = 0
    for bits, count in enumerate(buckets):
        if count and below + count >= wanted:
            low = 0 if bits == 0 else 1 << (bits - 1)
            return low + ((1 << bits) - low) * (wanted - below) / count
        below += count
    raise AssertionError("a quantile above all durations")


class Histogram:
    """Buckets with their sum, for durations outside of hot paths."""

    __slots__ = ("buckets", "count", "nanoseconds")

    def __init__(self) -> None:
        self.buckets = new_buckets()
        self.count = 0
        self.nanoseconds = 0

    def add(self, nanoseconds: int) -> None:
        nanoseconds = max(nanoseconds, 0)
        self.buckets[nanoseconds.bit_length()] += 1
        self.count += 1
        self.nanoseconds += nanoseconds


class Recent:
    """The counts of named histograms since the last reading that is at least five minutes old. Without such a reading, the counts since the
    start of the process."""

    __slots__ = ("_snapshots",)

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, dict[str, tuple[int, ...]]]] = deque()

    def of(self, now: float, histograms: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Returns the recent counts of each name. `now` is in seconds. If nothing was counted in the window, returns the counts since the
        start. Keeps these counts as a reading, unless the last one is too young."""
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now - WINDOW_SECONDS:
            snapshots.popleft()
        base = snapshots[0][1] if snapshots and snapshots[0][0] <= now - WINDOW_SECONDS else {}
        found = {}
        for name, buckets in histograms.items():
            before = base.get(name)
            recent = [count - earlier for count, earlier in zip(buckets, before, strict=True)] if before is not None else list(buckets)
            found[name] = recent if any(recent) else list(buckets)
        if not snapshots or now - snapshots[-1][0] >= WINDOW_SECONDS / (SNAPSHOTS_MAX - 2):
            snapshots.append((now, {name: tuple(buckets) for name, buckets in histograms.items()}))
        return found
