"""Delays new connections that exceed the configured rates (`security/quotas/connections.py`).

The connections of a listener are opened in order: a waiting one delays those behind it. A connection that is beyond the rate of its address
is closed after its delay, and delays no other connection. Nothing is read from a waiting connection. Only `WAITING_MAX` connections wait;
any further one is closed at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.base.ports import Channel, TimerHandle, Timers
from ottla.security.quotas.connections import ConnectionRates

WAITING_MAX = 1024

Admit = Callable[[str, Channel], object]


class ConnectionGate:
    """The new connections of one broker. `admit` is called with each connection that may be opened, and the name of its listener."""

    def __init__(self, rates: ConnectionRates, timers: Timers, admit: Admit) -> None:
        self._rates = rates
        self._timers = timers
        self._admit = admit
        self._waiting: dict[str, deque[Channel]] = {}  # by listener; the first of each is admitted next
        self._refused: dict[Channel, TimerHandle] = {}
        self._turns: dict[str, TimerHandle] = {}  # by listener: the timer of its first waiting connection

    @property
    def held_count(self) -> int:
        return len(self._refused) + sum(map(len, self._waiting.values()))

    def pass_through(self, listener: str, channel: Channel) -> None:
        """Admits the connection now or later, or closes it."""
        if listener in self._turns:
            self._wait(listener, channel)
            return
        delay = self._rates.note(listener, channel.peer_host)
        if delay.is_refused:
            self._refuse(channel, delay.ms)
        elif delay.ms:
            self._wait(listener, channel)
            self._turns[listener] = self._timers.call_later(delay.ms, lambda: self._next(listener))
        else:
            self._admit(listener, channel)

    def close(self) -> None:
        for timer in [*self._turns.values(), *self._refused.values()]:
            timer.cancel()
        for channel in [*self._refused, *(channel for waiting in self._waiting.values() for channel in waiting)]:
            channel.close()
        self._waiting, self._refused, self._turns = {}, {}, {}

    def _wait(self, listener: str, channel: Channel) -> None:
        if self.held_count >= WAITING_MAX:
            channel.close()
        else:
            self._waiting.setdefault(listener, deque()).append(channel)

    def _refuse(self, channel: Channel, delay_ms: int) -> None:
        if self.held_count >= WAITING_MAX:
            channel.close()
            return

        def close() -> None:
            del self._refused[channel]
            channel.close()

        self._refused[channel] = self._timers.call_later(delay_ms, close)

    def _next(self, listener: str) -> None:
        """Admits the first waiting connection, and the later ones until one has to wait again."""
        del self._turns[listener]
        waiting = self._waiting.pop(listener, None)
        if waiting:
            self._admit(listener, waiting.popleft())
        for channel in waiting or ():
            self.pass_through(listener, channel)
