"""Requests that are lost, delayed and doubled on their way, and answers that are lost and delayed.

Nothing keeps an order: each request travels alone, as the retries of a client on new connections do. A long delay is what brings an old
request into a later transaction. Brokers talk to each other over the same network.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.types import TopicPartition
from tests.fakes.timers import ManualTimers

if TYPE_CHECKING:
    from tests.sim.broker import SimBroker

LOST = 0.04
DOUBLED = 0.04
LATE = 0.06
LATE_MS = (200, 9_000)
SLOW = 0.1
SLOW_MS = (12, 200)
USUAL_MS = (1, 12)


class Call(NamedTuple):
    """One request to whoever leads `place`; `body` makes a fresh one for each copy that arrives."""

    handler: Any
    version: int
    body: Callable[[], Any]
    place: TopicPartition


class Network:
    def __init__(self, chance: random.Random, timers: ManualTimers) -> None:
        self._chance = chance
        self._timers = timers
        self.is_kind = False
        """Heals: nothing is lost or late any more."""

    def send(self, call: Call, broker: SimBroker, answered: Callable[[Any], None], *, is_peer: bool = False) -> None:
        copies = 2 if self._happens(DOUBLED) else 1
        for _ in range(copies):
            if not self._happens(LOST):
                self._timers.call_later(
                    self._delay_ms(), lambda: broker.handle(call, lambda answer: self._return(answer, answered), is_peer=is_peer)
                )

    def _return(self, answer: Any, answered: Callable[[Any], None]) -> None:
        if not self._happens(LOST):
            self._timers.call_later(self._delay_ms(), lambda: answered(answer))

    def _delay_ms(self) -> int:
        return self._chance.randint(*(LATE_MS if self._happens(LATE) else SLOW_MS if self._happens(SLOW) else USUAL_MS))

    def _happens(self, probability: float) -> bool:
        return not self.is_kind and self._chance.random() < probability
