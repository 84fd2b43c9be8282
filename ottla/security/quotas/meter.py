"""The measurements of one `QuotaShare` (requests that share a limit): their use, and how long their clients were throttled.

Bytes are measured by windows and by a token bucket of the same span; the longer of the two delays applies. For a steady flow of small
pieces both have the same effect. After a request that is larger than the span admits, the windows admit the next one when the first is
older than the span. The bucket admits it when its debt is repaid, which takes longer.

A fetch is admitted before it is sent, as soon as one part (`PARTS`) of the limit is free. If the whole answer had to fit, large answers
would leave much of the limit unused, and an answer larger than all windows would never be sent. The bucket records the excess as debt.
"""

from __future__ import annotations

from ottla.security.quotas.rates import TokenBucket, WindowedRate, Windows

PARTS = 40
"""Parts per span of the windows. A client at its limit reads one part at a time: 0.25 s worth with Kafka's default settings."""


class Meter:
    """The use of one `QuotaShare`."""

    __slots__ = ("_keeps_debts", "_span_s", "bucket", "limit", "rate", "throttle_times", "throttles", "used_ms")

    def __init__(self, windows: Windows, now_ms: int, *, has_bucket: bool = False, keeps_debts: bool = False) -> None:
        self.limit = 0.0
        self.rate = WindowedRate(windows)
        self.bucket = TokenBucket(windows) if has_bucket else None
        self.throttles = WindowedRate(windows)
        self.throttle_times = WindowedRate(windows)
        self.used_ms = now_ms
        self._keeps_debts = keeps_debts
        self._span_s = max(windows.count - 1, 1) * windows.size_ms / 1000

    @property
    def _part(self) -> float:
        return self.limit * self._span_s / PARTS

    def set_limit(self, limit: float) -> None:
        """Changes the limit. The amounts in the windows are kept. Fills the bucket, which cancels its debt, unless `keeps_debts`."""
        self.limit = limit
        if self.bucket is not None and not self._keeps_debts:
            self.bucket.fill()

    def use(self, amount: float, now_ms: int) -> int:
        """Counts an amount; returns how many milliseconds the client must wait because of it and of earlier use."""
        self.rate.record(amount, now_ms)
        throttle_ms = self.rate.throttle_ms(self.limit, now_ms)
        if self.bucket is not None:
            self.bucket.take(amount, self.limit, now_ms)
            throttle_ms = max(throttle_ms, self.bucket.throttle_ms(self.limit, now_ms))
        return throttle_ms

    def owed_ms(self, now_ms: int) -> int:
        """Returns how long clients must wait because of earlier use."""
        owed_ms = self.rate.throttle_ms(self.limit, now_ms)
        if self.bucket is not None:
            owed_ms = max(owed_ms, self.bucket.throttle_ms(self.limit, now_ms))
        return owed_ms

    def admit(self, amount: float, now_ms: int) -> int:
        """Counts an amount and returns 0 if one part of it fits. Otherwise counts nothing, and returns how many milliseconds the client
        must wait.
        """
        part = min(amount, self._part)
        throttle_ms = self.rate.throttle_ms(self.limit, now_ms, part)
        if self.bucket is not None:
            throttle_ms = max(throttle_ms, self.bucket.throttle_ms(self.limit, now_ms, part))
        if not throttle_ms:
            self.use(amount, now_ms)
        return throttle_ms

    def most(self, now_ms: int) -> float:
        """Returns the maximum size of an answer: the amount that is available now, and at least one part. The client may have to wait for
        this part."""
        available = min(self.limit * self._span_s, self.rate.available(self.limit, now_ms))
        if self.bucket is not None:
            available = min(available, self.bucket.available(self.limit, now_ms))
        return max(available, self._part)

    def note_throttle(self, throttle_ms: int, now_ms: int) -> None:
        self.throttles.record(1, now_ms)
        self.throttle_times.record(throttle_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """Returns the average throttle time of the throttled requests."""
        count = self.throttles.total(now_ms)
        return self.throttle_times.total(now_ms) / count if count > 0 else 0.0
