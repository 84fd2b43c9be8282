"""The measurements of one share: what it has used, and how long its clients were throttled."""

from __future__ import annotations

from ottla.security.quotas.rates import TokenBucket, WindowedRate, Windows


class Meter:
    """What one share has used."""

    __slots__ = ("bucket", "limit", "rate", "throttle_times", "throttles", "used_ms")

    def __init__(self, windows: Windows, now_ms: int, *, has_bucket: bool = False) -> None:
        self.limit = 0.0
        self.rate = WindowedRate(windows)
        self.bucket = TokenBucket(windows) if has_bucket else None
        self.throttles = WindowedRate(windows)
        self.throttle_times = WindowedRate(windows)
        self.used_ms = now_ms

    def note_throttle(self, throttle_ms: int, now_ms: int) -> None:
        self.throttles.record(1, now_ms)
        self.throttle_times.record(throttle_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """How long requests were throttled on average, of those that were."""
        count = self.throttles.total(now_ms)
        return self.throttle_times.total(now_ms) / count if count > 0 else 0.0
