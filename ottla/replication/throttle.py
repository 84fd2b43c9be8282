"""Bounds what replicas cost that are still being copied (KIP-73): a rate of bytes a broker, on the leader's side and on the follower's.

It counts for the replicas that a topic names (`leader.replication.throttled.replicas`, `follower.replication.throttled.replicas`) and only
while they are behind: a replica in sync is never held up. A bucket of one second fills at the rate; what is read may overdraw it by one
answer, and then nothing more is read until it is filled again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

UNLIMITED = 0x7FFFFFFFFFFFFFFF
BUCKET_MS = 1_000
EVERY_REPLICA = "*"


class Throttle:
    """One rate, in bytes a second; `rate` is called each time, since it may change."""

    def __init__(self, rate: Callable[[], int]) -> None:
        self._rate = rate
        self._left = 0.0
        self._filled_ms: int | None = None

    def allows(self, now_ms: int) -> bool:
        """Whether something may be read now (`now_ms` is monotonic)."""
        rate = self._rate()
        if rate >= UNLIMITED:
            return True
        self._fill(rate, now_ms)
        return self._left > 0

    def note(self, size: int, now_ms: int) -> None:
        """So many bytes have been read for throttled replicas."""
        rate = self._rate()
        if rate < UNLIMITED:
            self._fill(rate, now_ms)
            self._left -= size

    def _fill(self, rate: int, now_ms: int) -> None:
        full = rate * BUCKET_MS / 1000
        passed_ms = BUCKET_MS if self._filled_ms is None else now_ms - self._filled_ms
        self._left = min(full, self._left + rate * passed_ms / 1000)
        self._filled_ms = now_ms


def is_throttled(replicas: Collection[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of `partition:broker` names this replica."""
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
