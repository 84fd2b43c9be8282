"""Delays metadata answers about a suspected leader until a new leader is elected or the suspicion ends.

A client that loses its connection to a leader asks another broker for metadata at once, some milliseconds before a new leader is elected.
If the answer names the old leader, librdkafka asks again only a second later. So a broker suspects a leader that has closed its connection,
and delays answers that name this leader. The suspicion lasts `SUSPECTED_MS`, or `REFUSED_MS` from the moment when the leader's address
refuses a new connection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.base.ports import REFUSED, Channel, Locate, Network, Timers
from ottla.cluster import failure_detector

SUSPECTED_MS = 500
"""Duration of a suspicion after the connection was closed, in milliseconds. It ends earlier if the address accepts a connection after each
pause of `LOOKS_MS`."""
REFUSED_MS = 1_500
"""Duration of a suspicion after the address has refused, in milliseconds. A shorter time would not help a client: if it got an earlier
answer with the old leader, it would ask again only after this time.
"""
AGAIN_MS = 100
"""Pause between connections to an address that has refused, in milliseconds. These tries notice a restarted process."""
LOOKS_MS = failure_detector.LOOKS_MS[:3]
"""Pauses before an accepting address is tried again, in milliseconds: a killed process may close its connections before its port. There are
fewer pauses than in the failure detector, so that clients wait less."""

WAITING_MAX = 1_000
"""Maximum number of waiting answers. Further clients get the present metadata immediately."""


class Suspects:
    """The suspected brokers, and the answers that wait until they are no longer suspected."""

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
        """Called when the broker has closed its connection: suspects it and tests its address."""
        address = self._locate(broker_id)
        if address is None:
            return
        self._look(broker_id, self._suspect(broker_id, SUSPECTED_MS), address, LOOKS_MS)

    def _suspect(self, broker_id: int, ms: int) -> object:
        """Suspects a broker for `ms`. Replaces an earlier suspicion without calling waiting functions."""
        mark = self._since[broker_id] = object()
        self._timers.call_later(ms, lambda: self._clear(broker_id, mark))
        return mark

    def _look(self, broker_id: int, mark: object, address: tuple[str, int], pauses: Sequence[int]) -> None:
        """Connects once, and again after each pause. A broker that accepts all attempts is no longer suspected; one that refuses is
        suspected until it accepts, or for `REFUSED_MS`."""

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
        """Ends one suspicion, unless a later suspicion has replaced it."""
        if self._since.get(broker_id) is mark:
            del self._since[broker_id]
            self.review()

    def call_when_over(self, is_over: Callable[[Collection[int]], bool], function: Callable[[], object]) -> None:
        """Calls `function` once, when `is_over(suspected brokers)` is true. The condition is evaluated when metadata has changed and when a
        suspicion has ended. Calls `function` at once if too many wait already."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append((is_over, function))
        else:
            function()

    def review(self) -> None:
        """Calls the waiting functions with a condition that has become true. Called after changes of metadata or suspicions."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for is_over, function in waiting:
            if is_over(self.brokers):
                function()
            else:
                self._waiting.append((is_over, function))
