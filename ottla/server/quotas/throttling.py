"""Enforces the quotas of clients: charges their requests, reports the throttle time in the answers, and throttles their connections.

A request is executed and answered at once. The answer contains the time that the client must wait (`throttle_time_ms`), and for that time
its connection reads and executes nothing (KIP-219). So a client that does not wait gains nothing: its requests stay in its socket. A new
connection gains nothing either: the debt belongs to the user and the client id, and a new connection is throttled before its first request.
Handlers set `throttle_time_ms` themselves if a quota changes their answer (an empty fetch, a topic that is not created). The client must
wait for the longest of these times.

Connections of brokers are exempt. A forwarded request is charged by the broker that executes it. The broker that has forwarded it throttles
the connection for the time in the answer.
"""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.handlers.context import Pending, RequestContext
from ottla.security.quotas.clients import ClientQuotas
from ottla.server.connection import Connection
from ottla.server.connection_state import CLOSED
from ottla.server.execution.route import Route
from ottla.wire.apis import KEYS

UPLOADS = frozenset((KEYS["Produce"], KEYS["StageRecords"], KEYS["MirrorRecords"]))
"""Requests that are charged with their bytes."""


class ClientThrottle:
    """When the throttling of one connection ends, and the timer for that."""

    __slots__ = ("timer", "until_ms")

    def __init__(self, until_ms: int, timer: TimerHandle) -> None:
        self.until_ms = until_ms
        self.timer = timer


class Throttling:
    """The throttled connections of one broker. In use only while a quota is set (`Dispatcher.limit`)."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, timers: Timers) -> None:
        self._quotas = quotas
        self._clock = clock
        self._timers = timers
        self._throttled: dict[Connection, ClientThrottle] = {}

    def charge(self, connection: Connection, route: Route, request: RequestContext, response: Any, size: int, spent_ns: int) -> None:
        """Charges a request that was executed, and throttles the connection if its client must wait. `response` is a `Pending` or None if
        the answer is given later, and None if there is no answer."""
        info = connection.info
        if info.is_inter_broker or not info.is_authenticated:
            return
        throttle_ms = self._charge(route, request, size, spent_ns)
        if type(response) is Pending:
            response = response.response
            if type(response) is Pending or type(response) is GeneratorType:
                response = None  # The answer is given later (`note`).
        if route.has_throttle_time and response is not None:
            throttle_ms = response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)
        if throttle_ms:
            self._throttle(connection, throttle_ms)

    def _charge(self, route: Route, request: RequestContext, size: int, spent_ns: int) -> int:
        quotas, principal, client_id = self._quotas, request.connection.principal, request.client_id
        throttle_ms = quotas.charge_time(principal, client_id, spent_ns)
        if route.key in UPLOADS:
            throttle_ms = max(throttle_ms, quotas.charge_produce(principal, client_id, size))
        return throttle_ms

    def throttle_new(self, connection: Connection, client_id: str | None) -> bool:
        """Throttles a new connection, before its first request, for as long as the client would be throttled on another one."""
        info = connection.info
        owed_ms = 0 if info.is_inter_broker else self._quotas.owed_ms(info.principal, client_id)
        if owed_ms:
            self._throttle(connection, owed_ms)
        return owed_ms > 0

    def charge_forwarded(self, route: Route, request: RequestContext, response: Any, spent_ns: int) -> None:
        """Charges a request that another broker has forwarded, if its answer has a throttle time. That broker throttles the connection."""
        if route.has_throttle_time:
            response.throttle_time_ms = max(response.throttle_time_ms, self._charge(route, request, 0, spent_ns))

    def note(self, connection: Connection, route: Route, response: Any) -> None:
        """Called with a response that was given after its request was charged. Throttles the connection for the time in the response, and
        sets the response's throttle time to the connection's remaining time."""
        if response is None or not route.has_throttle_time or connection.info.is_inter_broker:
            return
        throttle_ms = response.throttle_time_ms
        if throttle_ms and connection.state is not CLOSED:
            self._throttle(connection, throttle_ms)
        throttle = self._throttled.get(connection)
        if throttle is not None:
            response.throttle_time_ms = max(throttle.until_ms - self._clock.monotonic_ms(), 0)

    def is_throttled(self, connection: Connection) -> bool:
        return connection in self._throttled

    def release_all(self) -> None:
        """Ends all throttling, because the quotas have changed."""
        for connection in list(self._throttled):
            self._release(connection)

    @property
    def throttled_count(self) -> int:
        return len(self._throttled)

    def _throttle(self, connection: Connection, throttle_ms: int) -> None:
        until_ms = self._clock.monotonic_ms() + throttle_ms
        known = self._throttled.get(connection)
        if known is not None:
            if known.until_ms >= until_ms:
                return
            known.timer.cancel()
        else:
            connection.throttle()
            connection.info.call_when_closed(self, lambda _: self._forget(connection))
        self._throttled[connection] = ClientThrottle(until_ms, self._timers.call_later(throttle_ms, lambda: self._release(connection)))

    def _release(self, connection: Connection) -> None:
        self._forget(connection)
        connection.info.forget_closing(self)
        connection.end_throttle()

    def _forget(self, connection: Connection) -> None:
        throttle = self._throttled.pop(connection, None)
        if throttle is not None:
            throttle.timer.cancel()
