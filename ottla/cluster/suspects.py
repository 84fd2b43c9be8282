"""Brokers that may have just died: clients that ask who leads instead of them are answered when that is decided, not before.

A client that loses its connection to a leader asks another broker for metadata at once, some milliseconds before others have been elected.
If the answer names the old leader, librdkafka asks again only a second later. So a broker whose connection to the leader was closed by the
other side, and whose address refuses a new one, waits with such an answer until other leaders have been named, for `REFUSED_MS` at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.base.ports import REFUSED, Channel, Locate, Network, Timers
from ottla.cluster import failure_detector

SUSPECTED_MS = 500
"""For an address that neither refuses nor accepts."""
REFUSED_MS = 1_500
"""For one that refuses: a client that is answered earlier, and before the election, is not back before this time either."""
AGAIN_MS = 100
"""The pause between two attempts: a process that was started again accepts."""
LOOKS_MS = failure_detector.LOOKS_MS[:3]
"""An address that accepts is tried again, for the same reason as there; clients do not wait for all of its looks."""

WAITING_MAX = 1_000
"""At most this many answers wait; further clients get the known metadata, and ask again."""


class Suspects:
    """The brokers that this one suspects, and what waits for an end of that."""

    def __init__(self, network: Network, timers: Timers, locate: Locate) -> None:
        self._network = network
        self._timers = timers
        self._locate = locate
        self._since: dict[int, object] = {}
        self._waiting: list[tuple[Callable[[Collection[int]], bool], Callable[[], object]]] = []

    @property
    def brokers(self) -> Collection[int]:
        return self._since.keys()

    def on_hang_up(self, broker_id: int) -> None:
        """A connection to the broker was closed by the other side."""
        address = self._locate(broker_id)
        if address is None:
            return
        self._look(broker_id, self._suspect(broker_id, SUSPECTED_MS), address, LOOKS_MS)

    def _suspect(self, broker_id: int, ms: int) -> object:
        """Begins a suspicion that ends after this time; another one that is there ends without a word."""
        mark = self._since[broker_id] = object()
        self._timers.call_later(ms, lambda: self._clear(broker_id, mark))
        return mark

    def _look(self, broker_id: int, mark: object, address: tuple[str, int], pauses: Sequence[int]) -> None:
        """Connects. A broker that accepts, after each of the pauses too, lives; one that refuses is dead until it accepts."""

        def connected(channel: Channel) -> None:
            channel.close()
            if not pauses:
                self._clear(broker_id, mark)
            elif self._since.get(broker_id) is mark:
                self._timers.call_later(pauses[0], lambda: self._look(broker_id, mark, address, pauses[1:]))

        def failed(reason: str) -> None:
            if reason == REFUSED and self._since.get(broker_id) is mark:
                self._wait_for_start(broker_id, self._suspect(broker_id, REFUSED_MS), address)

        self._network.connect(*address, connected, failed)

    def _wait_for_start(self, broker_id: int, mark: object, address: tuple[str, int]) -> None:
        """Tries an address that has refused from time to time, until it accepts or the suspicion ends."""

        def connected(channel: Channel) -> None:
            channel.close()
            self._clear(broker_id, mark)

        def look() -> None:
            if self._since.get(broker_id) is mark:
                self._network.connect(*address, connected, lambda _reason: self._wait_for_start(broker_id, mark, address))

        self._timers.call_later(AGAIN_MS, look)

    def _clear(self, broker_id: int, mark: object) -> None:
        """Ends one suspicion, if no later one has taken its place."""
        if self._since.get(broker_id) is mark:
            del self._since[broker_id]
            self.review()

    def call_when_over(self, is_over: Callable[[Collection[int]], bool], function: Callable[[], object]) -> None:
        """Calls `function` once `is_over(suspected brokers)`, which is asked when metadata or the suspects have changed; at once if too
        many wait already."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append((is_over, function))
        else:
            function()

    def review(self) -> None:
        """Metadata, or the suspects, have changed."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for is_over, function in waiting:
            if is_over(self.brokers):
                function()
            else:
                self._waiting.append((is_over, function))
