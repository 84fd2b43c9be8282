"""Changes of the cluster that one request asks for, counted in partitions that are created or deleted (KIP-599).

A client that is over its quota is refused what a strict request asks for next; older versions do not know that refusal, so what they ask
for is done, and they are throttled for longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.security.quotas.meter import Meter


class Mutations:
    """The changes of one request. Without a meter there is no quota."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "throttle_ms")

    def __init__(self, meter: Meter | None, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        self._meter = meter
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def take(self, count: int) -> bool:
        """Charges so many changes, or returns False: the client must ask again when it is not throttled any more."""
        meter = self._meter
        if meter is None or meter.bucket is None:
            return True
        now_ms = self._now_ms()
        is_allowed = not self._is_strict or not meter.bucket.is_in_debt(meter.limit, now_ms)
        if is_allowed:
            meter.bucket.take(count, meter.limit, now_ms)
            meter.rate.record(count, now_ms)
        if not self._is_strict or not is_allowed:
            self.throttle_ms = meter.bucket.throttle_ms(meter.limit, now_ms)
            if self.throttle_ms:
                meter.note_throttle(self.throttle_ms, now_ms)
        return is_allowed

    def give_back(self, count: int) -> None:
        """Takes back what was charged for changes that were refused."""
        meter = self._meter
        if meter is not None and meter.bucket is not None:
            now_ms = self._now_ms()
            meter.bucket.take(-count, meter.limit, now_ms)
            meter.rate.record(-count, now_ms)
