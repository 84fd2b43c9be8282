"""Finds that another broker's process is gone, without waiting for the end of its session with the metadata store.

A process that was killed leaves its session behind for seconds; its connections end at once, and its port refuses new ones. So a broker
counts as gone only if a connection of this broker to it, on which both have proved who they are, was closed by the other side, and its
address then refuses two more. A broker that is slow, paused, cut off or restarting its listeners is not: its host does not answer, or its
port accepts. What is found is true of one registration (broker epoch), not of the next.

The controller watches all other brokers, the others watch the controller (`watched`). Left out: what follows (`LocalController`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.base.ports import CONTROL_LANE, REFUSED, Channel, Locate, Network, Peers, Timers

log = logging.getLogger("ottla.cluster")

REFUSALS = 2
PAUSE_MS = 20
"""Between two attempts to connect: a broker that binds its port anew does it in less."""
LOOKS_MS = (10, 20, 40, 80, 160)
"""After these times a port that accepts is tried again: a process that is being killed may close its connections before its port."""
REOPEN_MS = 500
"""After a connection that could not be opened, or that ended though the broker lives."""

Gone = Callable[[int, int], object]
"""Called with the broker's id and the epoch of the registration that is gone."""


class FailureDetector:
    """The connections of one broker to those that it watches."""

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
        """`epoch_of`: the registered epoch of a broker, None if it is not registered."""
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
        """Opens connections to the brokers that are to be watched and are not yet."""
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
        """A connection to a broker was closed by the other side."""
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
        """Connects; after so many refusals, one after the other, the broker is gone. One that accepts is looked at again; `looks`: how
        often it was."""

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
