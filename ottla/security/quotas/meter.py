"""The measurements of one share: what it has used, and how long its clients were throttled.

Bytes count in the windows and in a bucket of as many seconds' worth; the client waits for the one that takes longer. What is sent in
pieces is held to its limit by both alike. A request of several seconds' worth passes the windows again as soon as they have forgotten the
last one, but not the bucket.

An answer is refused before it is sent, by a part of it: if the whole had to fit, what is left of the windows would be lost each time, which
is half of the limit for answers of five seconds' worth, and one that is larger than all windows would never be sent. What goes beyond that
part is owed to the bucket.
"""

from __future__ import annotations

from ottla.security.quotas.rates import TokenBucket, WindowedRate, Windows

PARTS = 40
"""Of the windows; a client at its limit reads one at a time: a quarter of a second's worth with Kafka's default settings."""


class Meter:
    """What one share has used."""

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
        """Another limit holds from now on. What was owed under the old one is forgotten unless the meter keeps debts."""
        self.limit = limit
        if self.bucket is not None and not self._keeps_debts:
            self.bucket.fill()

    def use(self, amount: float, now_ms: int) -> int:
        """Counts an amount; returns for how many milliseconds the client has to wait because of it."""
        self.rate.record(amount, now_ms)
        throttle_ms = self.rate.throttle_ms(self.limit, now_ms)
        if self.bucket is not None:
            self.bucket.take(amount, self.limit, now_ms)
            throttle_ms = max(throttle_ms, self.bucket.throttle_ms(self.limit, now_ms))
        return throttle_ms

    def owed_ms(self, now_ms: int) -> int:
        """Returns how long clients have to wait because of what was used before."""
        owed_ms = self.rate.throttle_ms(self.limit, now_ms)
        if self.bucket is not None:
            owed_ms = max(owed_ms, self.bucket.throttle_ms(self.limit, now_ms))
        return owed_ms

    def admit(self, amount: float, now_ms: int) -> int:
        """Counts an amount and returns 0; or returns for how many milliseconds the client has to wait before it may have the amount."""
        part = min(amount, self._part)
        throttle_ms = self.rate.throttle_ms(self.limit, now_ms, part)
        if self.bucket is not None:
            throttle_ms = max(throttle_ms, self.bucket.throttle_ms(self.limit, now_ms, part))
        if not throttle_ms:
            self.use(amount, now_ms)
        return throttle_ms

    def most(self, now_ms: int) -> float:
        """The most that an answer should hold: what there is room for, and a part at least, for which the client may have to wait."""
        room = min(self.limit * self._span_s, self.rate.room(self.limit, now_ms))
        if self.bucket is not None:
            room = min(room, self.bucket.available(self.limit, now_ms))
        return max(room, self._part)

    def note_throttle(self, throttle_ms: int, now_ms: int) -> None:
        self.throttles.record(1, now_ms)
        self.throttle_times.record(throttle_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """How long requests were throttled on average, of those that were."""
        count = self.throttles.total(now_ms)
        return self.throttle_times.total(now_ms) / count if count > 0 else 0.0
