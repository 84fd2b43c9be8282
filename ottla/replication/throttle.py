"""Limits replication of replicas that are not in sync (KIP-73): a rate in bytes per second and broker, on the leader's and the follower's
side.

It applies to the replicas that a topic lists (`leader.replication.throttled.replicas`, `follower.replication.throttled.replicas`), and only
while they are behind; in-sync replicas are never throttled. A token bucket holds the bytes of one second. One answer may overdraw the
bucket; then nothing more is read for throttled replicas until the balance is positive again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

UNLIMITED = 0x7FFFFFFFFFFFFFFF
BUCKET_MS = 1_000
EVERY_REPLICA = "*"


class ReplicationThrottle:
    """One rate, in bytes per second; `rate` is called each time, because the rate may change."""

    def __init__(self, rate: Callable[[], int]) -> None:
        self._rate = rate
        self._left = 0.0
        self._filled_ms: int | None = None

    def allows(self, now_ms: int) -> bool:
        """Whether a throttled replica may be read now (`now_ms` is monotonic)."""
        rate = self._rate()
        if rate >= UNLIMITED:
            return True
        self._fill(rate, now_ms)
        return self._left > 0

    def note(self, size: int, now_ms: int) -> None:
        """Charges bytes that were read for throttled replicas."""
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
    """Whether a topic's list of `partition:broker` contains this replica."""
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
