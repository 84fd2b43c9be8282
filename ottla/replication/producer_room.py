"""The bound on the producers that all partitions of a broker remember, and its shares: one user cannot take what others need.

A producer id is a number that a client makes up or asks for, and each partition remembers it, in some 600 bytes, for
`producer.id.expiration.ms` (a day). Apache Kafka has no bound. Here, when there are `ottla.producers.max`, the first batch of a new
producer removes a remembered one: of the principal that holds the most, the one that has written least recently. Its next batch is
accepted with any sequence, as after an expiry; a retry of a batch that it had sent before would be appended twice. A producer with an
open transaction is never removed. When all have one, the new producer is refused with POLICY_VIOLATION.

The log does not name principals. After a restart or a change of the leader the remembered producers belong to one unknown principal, which
has a share like others, until they write again.

Candidates are chosen for many removals at once, because choosing reads all remembered producers (80 ms of CPU for 100,000).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from ottla.base.errors import ApiError, ErrorCode
from ottla.storage.producers import ProducerEntry, ProducerStates

UNCOUNTED = -1
EVER = (1 << 63) - 1
CHOSEN_PART = 10
"""Candidates that one look at all producers chooses, as a part of the bound. With 1/10 a removal costs 10 us on average."""


class ProducerRoom:
    """The bound of one broker; `states` returns the producers of each of its partitions."""

    def __init__(self, states: Callable[[], Iterable[ProducerStates]], producers_max: Callable[[], int]) -> None:
        self._states = states
        self._producers_max = producers_max
        self._known = UNCOUNTED
        """At least the number of remembered producers, except for those that were learned by following other leaders."""
        self._candidates: list[tuple[ProducerStates, ProducerEntry, int]] = []
        """The next ones to remove, last first, each with the time of its last batch."""

    def admit(self) -> None:
        """Makes room for a new producer, before a leader appends its first batch. Raises `ApiError`."""
        producers_max = self._producers_max()
        if self._known == UNCOUNTED or (self._known >= producers_max and not self._candidates):
            self._known = sum(map(len, self._states()))
        while self._known >= producers_max:
            if not self._remove_next() and not self._choose(self._known - producers_max + 1 + producers_max // CHOSEN_PART):
                reason = f"this broker remembers {self._known:,} producers with open transactions (ottla.producers.max)"
                raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
        self._known += 1

    def _choose(self, count: int) -> bool:
        """Finds up to `count` candidates, up to half of what the principal with the most producers has; False if there are none."""
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
        """Removes one candidate that has not written since it was chosen; False if there is none."""
        while self._candidates:
            states, entry, written_ms = self._candidates.pop()
            if entry.written_ms == written_ms and states.forget(entry):
                self._known -= 1
                return True
        return False


def _idle(states: ProducerStates, principal: str, last_ms: int = EVER) -> list[ProducerEntry]:
    """The producers of `principal` without an open transaction that have written nothing since `last_ms`."""
    return [
        entry for entry in states.active()
        if entry.principal == principal and entry.written_ms <= last_ms and entry.transaction_first_offset < 0
    ]  # fmt: skip
