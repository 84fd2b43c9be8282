"""The loop's shell on connections whose sessions the broker limits (KIP-368): logins in time, under load, and those that fail."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.core.sasl import SaslExchange, exchange
from ottla.client.errors import AuthenticationError, ConnectError, RequestTimeoutError
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.test_loop import BROKER, World

HEARTBEAT, HANDSHAKE, AUTHENTICATE = 12, 17, 36
LIFETIME_MS = 1000


class Sessions:
    """A broker that answers only within a session, and knows how often each side has logged in."""

    def __init__(self, **options: Any) -> None:
        self.made = 0
        self.late = 0
        self.ends_ms = 0
        self.is_refusing = self.is_silent = False
        script: dict[int, Any] = {
            HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
            AUTHENTICATE: lambda _body, _version: self._authenticate(),
            HEARTBEAT: lambda _body, _version: self._heartbeat(),
        }
        self.world = World(script=script, new_exchange=self._exchange, **{"share": lambda: 0.5, **options})

    @property
    def now_ms(self) -> float:
        return self.world.timers.clock.monotonic_ms()

    def _exchange(self) -> SaslExchange:
        self.made += 1
        return exchange("PLAIN", "alice", "a", "")

    def _authenticate(self) -> SaslAuthenticateResponse | None:
        if self.is_silent:
            return None
        if self.is_refusing:
            return SaslAuthenticateResponse(error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message="no")
        self.ends_ms = int(self.now_ms) + LIFETIME_MS
        return SaslAuthenticateResponse(session_lifetime_ms=LIFETIME_MS)

    def _heartbeat(self) -> HeartbeatResponse:
        self.late += self.now_ms > self.ends_ms
        return HeartbeatResponse()

    def ask(self, count: int = 1) -> None:
        for _ in range(count):
            self.world.client.ask(BROKER, HeartbeatRequest(), self.world.done)

    def errors(self) -> list[type[BaseException]]:
        return [type(error) for _answer, error in self.world.results if error is not None]


def test_a_login_is_renewed_under_load_and_no_request_is_late() -> None:
    """Twenty sessions of requests that overlap: all are answered, in order, within a session."""
    sessions = Sessions()
    for _ in range(400):
        sessions.ask(5)
        sessions.world.settle()
        sessions.world.timers.advance(50)
    sessions.world.settle()
    assert len(sessions.world.results) == 2000 and sessions.errors() == [] and sessions.late == 0
    assert sessions.made == 23, "one for each 900 ms that had a request, and the first"
    assert len(sessions.world.network.channels) == 1, "on one connection"


def test_what_is_asked_during_a_login_waits_for_it() -> None:
    sessions = Sessions()
    sessions.ask()
    sessions.world.settle()
    sessions.world.timers.advance(920)
    sessions.ask(3)
    sessions.world.timers.run_due()
    (connection,) = sessions.world.client._connections.values()
    assert connection.is_open and connection.in_flight == 3
    sessions.ask()
    sessions.world.settle()
    assert len(sessions.world.results) == 5 and sessions.errors() == [] and sessions.made == 2


def test_a_login_that_is_refused_fails_what_waits_for_it() -> None:
    sessions = Sessions()
    sessions.ask()
    sessions.world.settle()
    sessions.is_refusing = True
    sessions.world.timers.advance(920)
    sessions.ask(2)
    sessions.world.settle()
    assert sessions.errors() == [AuthenticationError, AuthenticationError]


def test_a_login_that_is_not_answered_ends_with_the_request() -> None:
    sessions = Sessions(timeout_s=5)
    sessions.ask()
    sessions.world.settle()
    sessions.is_silent = True
    sessions.world.timers.advance(920)
    sessions.ask(2)
    sessions.world.settle()
    sessions.world.timers.advance(5000)
    assert sessions.errors() == [RequestTimeoutError, ConnectError]
    assert sessions.world.timers.pending() == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_login_that_cannot_begin_is_an_error_of_the_request(is_first: bool) -> None:
    """Where the token cannot be had, for example."""
    sessions = Sessions()
    if not is_first:
        sessions.ask()
        sessions.world.settle()
        sessions.world.timers.advance(920)

    def fail() -> None:
        raise ConnectError("no token")

    for holder in (sessions.world.client, *sessions.world.client._connections.values()):
        holder._new_exchange = fail
    sessions.ask()
    assert sessions.errors() == [], "never before the call returns"
    sessions.world.settle()
    assert sessions.errors() == [ConnectError]
