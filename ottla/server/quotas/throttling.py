"""Holds clients to their quotas: charges their requests, says so in the answers, and stops reading from those that exceed a quota.

A request is executed and its answer is sent at once, with the time that its client has to wait (`throttle_time_ms`); for that time its
connection is muted: nothing more is read from it and nothing executed (KIP-219). So a client that does not wait is held up all the same,
and what it sends meanwhile stays in its socket. Nor does it help to connect again: what a client owes follows its user and client id, and
a new connection is muted before its first request. Handlers set `throttle_time_ms` where a quota changes their answer (an empty fetch, a
topic that is not created); the longest of all times counts.

Brokers' connections are exempt. A request that was forwarded is charged where it is executed; the connection that it came by is muted here
for as long as the answer says.
"""

from __future__ import annotations

from typing import Any

from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.requests.context import Pending, RequestContext
from ottla.security.quotas.clients import ClientQuotas
from ottla.server.connection import Connection
from ottla.server.execution.route import Route
from ottla.wire.apis import KEYS

UPLOADS = frozenset((KEYS["Produce"], KEYS["StageRecords"]))
"""Requests that are charged with their bytes."""


class Mute:
    """One muted connection: until when."""

    __slots__ = ("timer", "until_ms")

    def __init__(self, until_ms: int, timer: TimerHandle) -> None:
        self.until_ms = until_ms
        self.timer = timer


class Throttling:
    """The throttled connections of one broker. In use only while a quota is set (`Dispatcher.throttling`)."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, timers: Timers) -> None:
        self._quotas = quotas
        self._clock = clock
        self._timers = timers
        self._muted: dict[Connection, Mute] = {}

    def charge(self, connection: Connection, route: Route, request: RequestContext, response: Any, size: int, spent_ns: int) -> bool:
        """Charges a request that was executed; `response` is a Pending where its answer comes later, None where there is none. Returns
        whether the connection is muted: it must execute nothing further."""
        info = connection.info
        if info.is_inter_broker or not info.is_authenticated:
            return False
        throttle_ms = self._charge(route, request, size, spent_ns)
        if type(response) is Pending:
            response = response.response
        if route.has_throttle_time and response is not None:
            throttle_ms = response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
        if throttle_ms:
            self._mute(connection, throttle_ms)
        return connection.is_muted

    def _charge(self, route: Route, request: RequestContext, size: int, spent_ns: int) -> int:
        quotas, principal, client_id = self._quotas, request.connection.principal, request.client_id
        throttle_ms = quotas.charge_time(principal, client_id, spent_ns)
        if route.key in UPLOADS:
            throttle_ms = max(throttle_ms, quotas.charge_produce(principal, client_id, size))
        return throttle_ms

    def hold_back(self, connection: Connection, client_id: str | None) -> bool:
        """Mutes a new connection, before its first request, for as long as its client would be muted on another one."""
        info = connection.info
        owed_ms = 0 if info.is_inter_broker else self._quotas.owed_ms(info.principal, client_id)
        if owed_ms:
            self._mute(connection, owed_ms)
        return owed_ms > 0

    def charge_forwarded(self, route: Route, request: RequestContext, response: Any, spent_ns: int) -> None:
        """Charges a request that another broker has forwarded; that one mutes the connection."""
        if route.has_throttle_time:
            response.throttle_time_ms = max(response.throttle_time_ms, self._charge(route, request, 0, spent_ns))

    def note(self, connection: Connection, route: Route, response: Any) -> None:
        """Sets the throttle time of an answer that has come later than its request was charged."""
        if response is None or not route.has_throttle_time or connection.info.is_inter_broker:
            return
        throttle_ms = response.throttle_time_ms
        if throttle_ms and not connection.is_closed:
            self._mute(connection, throttle_ms)
        mute = self._muted.get(connection)
        if mute is not None:
            response.throttle_time_ms = max(mute.until_ms - self._clock.monotonic_ms(), 0)

    def release_all(self) -> None:
        """Ends all throttling: other quotas are in force."""
        for connection in list(self._muted):
            self._release(connection)

    @property
    def muted_count(self) -> int:
        return len(self._muted)

    def _mute(self, connection: Connection, throttle_ms: int) -> None:
        until_ms = self._clock.monotonic_ms() + throttle_ms
        known = self._muted.get(connection)
        if known is not None:
            if known.until_ms >= until_ms:
                return
            known.timer.cancel()
        else:
            connection.mute()
            connection.info.call_when_closed(self, lambda _: self._forget(connection))
        self._muted[connection] = Mute(until_ms, self._timers.call_later(throttle_ms, lambda: self._release(connection)))

    def _release(self, connection: Connection) -> None:
        self._forget(connection)
        connection.info.forget_closing(self)
        connection.is_muted = False
        connection.unchoke()

    def _forget(self, connection: Connection) -> None:
        mute = self._muted.pop(connection, None)
        if mute is not None:
            mute.timer.cancel()
