"""The two measures of a quota, and how long a client that exceeds one is throttled.

`WindowedRate` measures bytes, request time and connections. It is the average per second over `quota.window.num` samples of
`quota.window.size.seconds`; the newest sample is incomplete. After a pause a client may therefore immediately use the amount that it left
unused within the windows. It is throttled until the average has fallen to the limit.

`TokenBucket` limits mutations of the cluster (KIP-599), over `controller.quota.window.num` samples of
`controller.quota.window.size.seconds`. Tokens are added at the limit's rate until the bucket is full. A mutation may take more tokens than
the bucket has; the client is then throttled until the bucket is at zero again.

Windows bound the use within their span, but ignore older use: a client with large requests, each worth several seconds, exceeds the limit
in the long run. A bucket enforces the limit in the long run, but a client that was idle can use a full bucket in addition to the tokens
that are added meanwhile. Bytes are therefore measured by both (`meter.py`).
"""

from __future__ import annotations

from ottla.base.immutable import immutable

THROTTLE_MS_MAX = (1 << 31) - 1
"""The largest `throttle_time_ms` in an answer."""
ROUNDING = 1e-6


@immutable
class Windows:
    """Number and length of the samples of a quota."""

    count: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.count * self.size_ms


class WindowedRate:
    """The amounts of the last windows, as a rate."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []  # start and amount of each; the oldest first

    def record(self, amount: float, now_ms: int) -> None:
        """Adds an amount; a negative amount is a refund."""
        samples, windows = self._samples, self._windows
        if samples and now_ms - samples[-1][0] < windows.size_ms:
            samples[-1][1] += amount
            return
        samples.append([now_ms, amount])
        if len(samples) > windows.count:
            del samples[0]

    def total(self, now_ms: int) -> float:
        """Returns the sum of the windows that have not expired."""
        samples, oldest_ms = self._samples, now_ms - self._windows.span_ms
        while samples and samples[0][0] <= oldest_ms:
            del samples[0]
        return sum([amount for _, amount in samples])

    def measure(self, now_ms: int) -> float:
        """Returns the rate in units per second."""
        return 1000 * self.total(now_ms) / self._window_ms(now_ms)

    def _window_ms(self, now_ms: int) -> int:
        """Returns the divisor of the total. All windows except the newest are treated as complete, even at the start of the measurement."""
        windows = self._windows
        if not self._samples:
            return max(windows.count - 1, 1) * windows.size_ms
        elapsed_ms = now_ms - int(self._samples[0][0])
        missing = windows.count - 1 - elapsed_ms // windows.size_ms
        return max(elapsed_ms + max(missing, 0) * windows.size_ms, 1)

    def available(self, limit: float, now_ms: int) -> float:
        """Returns the amount that may be added before the rate reaches the limit; negative if it is exceeded."""
        total = self.total(now_ms)
        return limit * self._window_ms(now_ms) / 1000 - total

    def throttle_ms(self, limit: float, now_ms: int, further: float = 0.0) -> int:
        """Returns how long to wait until the rate, including a further amount, is at the limit; 0 if it is not exceeded."""
        missing = further - self.available(limit, now_ms)
        return min(round(1000 * missing / limit), THROTTLE_MS_MAX) if missing > 0 else 0


class TokenBucket:
    """A token bucket of one share; full at first."""

    __slots__ = ("_refilled_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._refilled_ms = -1

    def available(self, limit: float, now_ms: int) -> float:
        """Returns the number of tokens; negative if more were taken than there were."""
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
        return self.available(limit, now_ms) < -ROUNDING

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Takes tokens, also more than there are; a negative count returns tokens."""
        self.available(limit, now_ms)
        self._tokens -= count

    def throttle_ms(self, limit: float, now_ms: int, wanted: float = 0.0) -> int:
        """Returns how long to wait until there are `wanted` tokens."""
        return min(round(max(wanted - self.available(limit, now_ms), 0) / limit * 1000), THROTTLE_MS_MAX)
