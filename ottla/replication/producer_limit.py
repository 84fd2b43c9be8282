"""Limits the idempotent producers that all partitions of a broker remember, with fair eviction by principal.

A client chooses or requests a producer id, and each partition remembers it, in some 600 bytes, for `producer.id.expiration.ms` (a day).
Apache Kafka has no limit. Here, when `ottla.producers.max` is reached, the first batch of a new producer evicts another producer: the least
recently active producer of the principal with the most producers. The evicted producer's next batch is accepted with any sequence, as after
an expiry; a retry of an earlier batch would be appended twice. A producer with an open transaction is never evicted. If all have one, the
new producer is refused with POLICY_VIOLATION.

The log does not store principals. After a restart or a change of leader the remembered producers belong to one unknown principal, which is
treated like others, until they write again.

Candidates are chosen for many evictions at once, because choosing reads all remembered producers (80 ms of CPU for 100,000).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.storage.producers import ProducerEntry, ProducerStates

UNCOUNTED = -1
EVER = (1 << 63) - 1
CHOSEN_PART = 10
"""One scan of all producers chooses a tenth of the limit as candidates. An eviction then costs 10 us on average."""


class ProducerLimit:
    """The limit of one broker; `states` returns the producers of each of its partitions."""

    def __init__(self, states: Callable[[], Iterable[ProducerStates]], producers_max: Callable[[], int]) -> None:
        self._states = states
        self._producers_max = producers_max
        self._known = UNCOUNTED
        """Number of producers at the last count, plus those admitted and minus those evicted since. Producers of followed partitions and
        expired ones are noticed only by the next count.
        """
        self._candidates: list[tuple[ProducerStates, ProducerEntry, int]] = []
        """The next producers to evict, in reverse order, each with the time of its last batch."""

    def admit(self) -> None:
        """Evicts a producer if necessary, before a leader appends a new producer's first batch. Raises `ApiError`."""
        producers_max = self._producers_max()
        if self._known == UNCOUNTED or (self._known >= producers_max and not self._candidates):
            self._known = sum(map(len, self._states()))
        while self._known >= producers_max:
            if not self._remove_next() and not self._choose(self._known - producers_max + 1 + producers_max // CHOSEN_PART):
                reason = f"this broker remembers {self._known:,} producers with open transactions (ottla.producers.max)"
                raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
        self._known += 1

    def _choose(self, count: int) -> bool:
        """Chooses up to `count` candidates, about half of the largest principal's producers at most; returns False if there are none."""
        holders = Counter[str]()
        for states in self._states():
            holders.update([entry.principal for entry in states.active() if entry.transaction_first_offset < 0])
        if not holders:
            return False
        largest, held = holders.most_common(1)[0]
        times = sorted([entry.written_ms for states in self._states() for entry in _idle(states, largest)])
        count = min(count, held // 2 + 1)
        last_ms = times[count - 1]
        found = [(states, entry, entry.written_ms) for states in self._states() for entry in _idle(states, largest, last_ms)]
        found.sort(key=lambda candidate: candidate[2])
        self._candidates = found[count - 1 :: -1]
        return True

    def _remove_next(self) -> bool:
        """Evicts one candidate that has not written since it was chosen; returns False if there is none."""
        while self._candidates:
            states, entry, written_ms = self._candidates.pop()
            if entry.written_ms == written_ms and states.forget(entry):
                self._known -= 1
                return True
        return False


def _idle(states: ProducerStates, principal: str, last_ms: int = EVER) -> list[ProducerEntry]:
    """Returns the producers of `principal` without an open transaction whose last batch is not newer than `last_ms`."""
    return [
        entry for entry in states.active()
        if entry.principal == principal and entry.written_ms <= last_ms and entry.transaction_first_offset < 0
    ]  # fmt: skip
