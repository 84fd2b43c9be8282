"""Logs which other brokers do not answer: one line at the first failure, then at growing intervals, and one at the next answer."""

from __future__ import annotations

import logging

from ottla.base.ports import Clock

log = logging.getLogger("ottla.peers")

AGAIN_MS_MIN, AGAIN_MS_MAX = 10_000, 600_000


class _Silence:
    """The time since a broker stopped answering."""

    __slots__ = ("began_ms", "failures", "interval_ms", "next_ms")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = now_ms
        self.failures = 0
        self.interval_ms = AGAIN_MS_MIN
        self.next_ms = now_ms


class Reachability:
    """Notes the outcome of requests to other brokers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[int, _Silence] = {}

    def failed(self, broker_id: int, reason: str) -> None:
        now_ms = self._clock.monotonic_ms()
        silence = self._silent.get(broker_id)
        if silence is None:
            silence = self._silent[broker_id] = _Silence(now_ms)
        silence.failures += 1
        if now_ms < silence.next_ms:
            return
        if silence.failures == 1:
            log.info("broker %d: %s", broker_id, reason)
        else:
            seconds = (now_ms - silence.began_ms) // 1000
            log.info("broker %d: %s; %d requests have failed in %d s", broker_id, reason, silence.failures, seconds)
            silence.interval_ms = min(2 * silence.interval_ms, AGAIN_MS_MAX)
        silence.next_ms = now_ms + silence.interval_ms

    def answered(self, broker_id: int) -> None:
        silence = self._silent.pop(broker_id, None) if self._silent else None
        if silence is not None:
            seconds = (self._clock.monotonic_ms() - silence.began_ms) / 1000
            log.info("broker %d answers again after %.1f s and %d failed requests", broker_id, seconds, silence.failures)
