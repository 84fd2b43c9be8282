"""Detects that another broker's process has ended before its session with the metadata store expires.

The session of a killed process lasts for seconds; its connections end at once, and its port refuses new ones. So a broker is declared dead
only if the other side closed a connection on which both had proved their identity, and its address then refuses two more connections. A
broker that is slow, paused, cut off or restarting its listeners is not declared dead: its host does not answer, or its port accepts. A
detection concerns one registration (broker epoch), not later ones.

The controller watches all other brokers, the others watch the controller (`watched`). `LocalController` decides the consequences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.base.ports import CONTROL_LANE, REFUSED, Channel, Locate, Network, Peers, Timers

log = logging.getLogger("ottla.cluster")

REFUSALS = 2
PAUSE_MS = 20
"""Pause between two refused connections, in milliseconds. A broker that binds its port again takes less."""
LOOKS_MS = (10, 20, 40, 80, 160)
"""Pauses before an accepting port is tried again, in milliseconds: a killed process may close its connections before its port."""
REOPEN_MS = 500
"""Pause before a connection is opened again after a failure, in milliseconds."""

Gone = Callable[[int, int], object]
"""Called with the broker's id and the epoch of the registration that has ended."""


class FailureDetector:
    """Keeps connections to the watched brokers, and tests the address of a broker that closes its connection."""

    def __init__(
        self,
        peers: Peers,
        network: Network,
        timers: Timers,
        *,
        locate: Locate,
        epoch_of: Callable[[int], int | None],
        watched: Callable[[], Iterable[int]],
        on_gone: Gone,
    ) -> None:
        """`epoch_of` returns the epoch of a broker's registration, or None."""
        self._peers = peers
        self._network = network
        self._timers = timers
        self._locate = locate
        self._epoch_of = epoch_of
        self._watched = watched
        self._on_gone = on_gone
        self._held: dict[int, None] = {}
        self._probed: dict[int, None] = {}
        self._is_closed = False
        peers.call_at_hang_up(self.on_hang_up)

    def review(self) -> None:
        """Opens the missing connections to watched brokers."""
        for broker_id in list(self._watched()):
            if broker_id not in self._held and not self._is_closed:
                self._hold(broker_id)

    def close(self) -> None:
        self._is_closed = True

    def _hold(self, broker_id: int) -> None:
        from ottla.wire.messages.api_versions import ApiVersionsRequest

        self._held[broker_id] = None

        def answered(_response: object, code: int) -> None:
            if code:
                self._held.pop(broker_id, None)
                self._review_later()

        self._peers.send(broker_id, ApiVersionsRequest(), answered, lane=CONTROL_LANE)

    def _review_later(self) -> None:
        self._timers.call_later(REOPEN_MS, self.review)

    def on_hang_up(self, broker_id: int) -> None:
        """Called when a broker has closed its connection: begins to test its address."""
        self._held.pop(broker_id, None)
        epoch, address = self._epoch_of(broker_id), self._locate(broker_id)
        if self._is_closed or broker_id in self._probed or broker_id not in self._watched():
            return
        if epoch is None or address is None:
            self._review_later()
        else:
            self._probed[broker_id] = None
            self._probe(broker_id, epoch, address, REFUSALS, 0)

    def _probe(self, broker_id: int, epoch: int, address: tuple[str, int], refusals: int, looks: int) -> None:
        """Connects to the broker. Declares it dead after `refusals` refusals in a row. A broker that accepts is tried again after
        `LOOKS_MS`; `looks` counts these tries."""

        def lives() -> None:
            self._probed.pop(broker_id, None)
            self._review_later()

        def connected(channel: Channel) -> None:
            channel.close()
            if looks < len(LOOKS_MS) and not self._is_closed:
                self._timers.call_later(LOOKS_MS[looks], lambda: self._probe(broker_id, epoch, address, REFUSALS, looks + 1))
            else:
                lives()

        def failed(reason: str) -> None:
            if reason != REFUSED or self._is_closed:
                lives()
            elif refusals == 1:
                self._probed.pop(broker_id, None)
                log.warning("broker %d is gone: it closed its connection, and its address refuses new ones", broker_id)
                self._on_gone(broker_id, epoch)
            else:
                self._timers.call_later(PAUSE_MS, lambda: self._probe(broker_id, epoch, address, refusals - 1, looks))

        self._network.connect(*address, connected, failed)
