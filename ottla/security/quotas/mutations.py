"""Mutations of the cluster by one request, counted in partitions that are created or deleted (KIP-599).

If the client is over its quota, further mutations of a strict request are refused. Older versions do not know this error, so their
mutations are done and the client is throttled for longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.security.quotas.meter import Meter


class Mutations:
    """The mutations of one request. Without a meter there is no quota."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "throttle_ms")

    def __init__(self, meter: Meter | None, now_ms: Callable[[], int], *, is_strict: bool) -> None:
        self._meter = meter
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def take(self, count: int) -> bool:
        """Charges `count` mutations and returns True; returns False if the client must retry after the throttle time."""
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
        """Refunds the charge for mutations that were refused."""
        meter = self._meter
        if meter is not None and meter.bucket is not None:
            now_ms = self._now_ms()
            meter.bucket.take(-count, meter.limit, now_ms)
            meter.rate.record(-count, now_ms)
