"""The two measures of a quota, and how long a client that exceeds one is throttled.

`WindowedRate` measures bytes, request time and connections: a second's average over `quota.window.num` samples of
`quota.window.size.seconds`, the newest of which is not over yet. So after a pause a client may use at once what it left unused within the
windows. It is throttled for as long as it takes until the average is the limit again.

`TokenBucket` measures changes of the cluster (KIP-599): tokens come in at the limit's rate until the bucket is full, a change takes some,
and may take more than there are; the client is throttled until the bucket is at zero again.

Windows bound what is used within their span, but they forget: requests of several seconds' worth each pass them at more than the limit in
the long run. A bucket holds the limit in the long run, and lets an idle client use as much again while its bucket fills. So bytes are
measured by both (`meter.py`).
"""

from __future__ import annotations

from ottla.base.immutable import immutable

THROTTLE_MS_MAX = (1 << 31) - 1
"""The largest `throttle_time_ms` that an answer can hold."""
ROUNDING = 1e-6


@immutable
class Windows:
    """How long a quota is measured."""

    count: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.count * self.size_ms


class WindowedRate:
    """Amounts of the last windows, as a rate."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []  # when each began, and its amount; the oldest first

    def record(self, amount: float, now_ms: int) -> None:
        """Adds an amount; a negative one takes back what has been added before."""
        samples, windows = self._samples, self._windows
        if samples and now_ms - samples[-1][0] < windows.size_ms:
            samples[-1][1] += amount
            return
        samples.append([now_ms, amount])
        if len(samples) > windows.count:
            del samples[0]

    def total(self, now_ms: int) -> float:
        """The amount of the windows that still count."""
        samples, oldest_ms = self._samples, now_ms - self._windows.span_ms
        while samples and samples[0][0] <= oldest_ms:
            del samples[0]
        return sum([amount for _, amount in samples])

    def measure(self, now_ms: int) -> float:
        """The rate, in units a second."""
        return 1000 * self.total(now_ms) / self._window_ms(now_ms)

    def _window_ms(self, now_ms: int) -> int:
        """The time that the total is divided by: as if all windows but the newest were over, however short the measurement has been."""
        windows = self._windows
        if not self._samples:
            return max(windows.count - 1, 1) * windows.size_ms
        elapsed_ms = now_ms - int(self._samples[0][0])
        missing = windows.count - 1 - elapsed_ms // windows.size_ms
        return max(elapsed_ms + max(missing, 0) * windows.size_ms, 1)

    def room(self, limit: float, now_ms: int) -> float:
        """The amount that may be added until the rate is the limit; negative if it is exceeded."""
        total = self.total(now_ms)
        return limit * self._window_ms(now_ms) / 1000 - total

    def throttle_ms(self, limit: float, now_ms: int, further: float = 0.0) -> int:
        """How long to wait until the rate, with a further amount added, is the limit; 0 if it is not exceeded."""
        missing = further - self.room(limit, now_ms)
        return min(round(1000 * missing / limit), THROTTLE_MS_MAX) if missing > 0 else 0


class TokenBucket:
    """Tokens of one client; full at first."""

    __slots__ = ("_refilled_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._refilled_ms = -1

    def available(self, limit: float, now_ms: int) -> float:
        """The tokens that there are, or, if negative, that have been taken too many."""
        full = limit * self._windows.span_ms / 1000
        if self._refilled_ms < 0:
            self._tokens = full
        else:
            self._tokens = min(self._tokens + limit * (now_ms - self._refilled_ms) / 1000, full)
        self._refilled_ms = now_ms
        return self._tokens

    def fill(self) -> None:
        self._refilled_ms = -1

    def is_in_debt(self, limit: float, now_ms: int) -> bool:
        """Whether more tokens have been taken than there were."""
        return self.available(limit, now_ms) < -ROUNDING

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Takes tokens, more than there are if need be; a negative count gives tokens back."""
        self.available(limit, now_ms)
        self._tokens -= count

    def throttle_ms(self, limit: float, now_ms: int, wanted: float = 0.0) -> int:
        """How long to wait until there are as many tokens as wanted."""
        return min(round(max(wanted - self.available(limit, now_ms), 0) / limit * 1000), THROTTLE_MS_MAX)
