"""The loop's shell on connections whose sessions the broker limits (KIP-368): logins in time, under load, and those that fail."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.core.sasl import SaslExchange, exchange
from ottla.client.errors import AuthenticationError, ConnectError, MalformedResponseError, RequestTimeoutError
from ottla.security.authentication import StepResult
from ottla.security.scram_server import ScramServer, make_credential
from ottla.server.peer_connection import LoopConnection
from ottla.wire.messages.heartbeat import HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.fakes.threads import ManualThreads
from tests.server.test_peer_connection import BROKER, PeerWorld

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
        self.world = PeerWorld(script=script, new_exchange=self._exchange, **options)

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
            self.world.ask()

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
    (connection,) = sessions.world.connections.values()
    assert connection.is_open and len(connection._line.held) == 3
    sessions.ask()
    sessions.world.settle()
    assert len(sessions.world.results) == 5 and sessions.errors() == [] and sessions.made == 2


def test_held_requests_fail_when_the_first_of_them_finds_the_connection_closed() -> None:
    """The second one was sent on a closed connection: a broken invariant, which stops a broker."""
    sessions = Sessions()
    sessions.ask()
    sessions.world.settle()
    (channel,) = sessions.world.network.channels

    def reset(_body: Any, _version: int) -> None:
        channel.close()
        channel.receiver.closed()

    sessions.world.peer.script[HEARTBEAT] = reset
    sessions.world.timers.advance(920)
    sessions.ask(3)
    sessions.world.settle()
    assert sessions.errors() == [ConnectError] * 3
    assert sessions.world.timers.pending() == 0


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

    sessions.world.new_exchange = fail
    sessions.ask()
    assert sessions.errors() == [], "never before the call returns"
    sessions.world.settle()
    assert sessions.errors() == [ConnectError]


def test_another_login_may_begin_later() -> None:
    """As where a token is fetched in a thread first."""
    sessions = Sessions()
    sessions.ask()
    sessions.world.settle()
    (connection,) = sessions.world.connections.values()
    begun: list[Any] = []
    connection._begin_login = begun.append
    sessions.world.timers.advance(920)
    sessions.ask(2)
    sessions.world.settle()
    assert len(begun) == 1 and len(sessions.world.results) == 1 and len(connection._line.held) == 2 and connection.is_open
    begun[0](exchange("PLAIN", "alice", "a", ""), None)
    sessions.world.settle()
    assert len(sessions.world.results) == 3 and sessions.errors() == [] and sessions.late == 0
    sessions.world.timers.advance(920)
    sessions.ask()
    sessions.world.settle()
    connection.close()
    begun[1](exchange("PLAIN", "alice", "a", ""), None)
    assert sessions.errors() == [ConnectError], "what comes after the end changes nothing"


class ScramBroker:
    """A broker whose user alice has the password `wonder`, and connections to it that hash passwords in threads of the test."""

    def __init__(self) -> None:
        credential = make_credential("SCRAM-SHA-256", "wonder", b"salt", 4096)
        self.server = ScramServer("SCRAM-SHA-256", lambda _name: credential, lambda _name: credential, "server")
        script: dict[int, Any] = {
            HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
            AUTHENTICATE: lambda body, _version: self._authenticate(bytes(body.auth_bytes)),
        }
        self.world = PeerWorld(script=script)
        self.threads = ManualThreads()

    def _authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        found: list[StepResult] = []
        self.server.step(token, found.append)
        code = ErrorCode.NONE if found[0].error is None else ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(error_code=int(code), error_message=found[0].error, auth_bytes=found[0].token)

    def connect(self, password: str = "wonder") -> LoopConnection:
        world, login = self.world, exchange("SCRAM-SHA-256", "alice", password, "client")
        made = LoopConnection(BROKER, world.network, world.timers, world.timers.clock, sasl=login, threads=self.threads)
        made.open(world.done)
        world.settle()
        return made


def test_a_password_is_hashed_in_a_thread_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScramBroker()
    rounds: list[int] = []
    hashed = hashlib.pbkdf2_hmac
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *given: (rounds.append(given[3]), hashed(*given))[1])
    connection = broker.connect()
    assert rounds == [] and len(broker.threads.waiting) == 1 and not connection.is_open
    broker.threads.run_one()
    assert rounds == [4096]
    broker.world.settle()
    assert connection.is_open and rounds == [4096] and not broker.threads.waiting


def test_a_wrong_password_is_refused_after_it() -> None:
    broker = ScramBroker()
    broker.connect("wander")
    broker.threads.run_all()
    broker.world.settle()
    assert isinstance(broker.world.error(), AuthenticationError)


def test_a_connection_that_is_closed_while_its_password_is_hashed_stays_so() -> None:
    broker = ScramBroker()
    connection = broker.connect()
    connection.close()
    broker.threads.run_all()
    broker.world.settle()
    assert isinstance(broker.world.error(), ConnectError) and broker.world.timers.pending() == 0


@pytest.mark.parametrize("first", [b"r=client1,s=c2FsdA==,i=1", b"r=other,s=c2FsdA==,i=4096", b"\xff", b"r=client1,s=!,i=4096"])
def test_a_challenge_that_makes_no_sense_is_an_error_of_the_login(first: bytes) -> None:
    broker = ScramBroker()
    broker.world.peer.script[AUTHENTICATE] = lambda _body, _version: SaslAuthenticateResponse(auth_bytes=first)
    broker.connect()
    broker.threads.run_all()
    broker.world.settle()
    assert isinstance(broker.world.error(), AuthenticationError)


def test_what_comes_before_the_answer_to_a_challenge_ends_the_connection() -> None:
    broker = ScramBroker()
    connection = broker.connect()
    (channel,) = broker.world.network.channels
    channel.send([bytes(connection.protocol.request(SaslHandshakeRequest(mechanism="PLAIN"), version=1, is_answered=False))])
    broker.world.settle()
    assert connection.is_closed and isinstance(broker.world.error(), MalformedResponseError)
    broker.threads.run_all()
    broker.world.settle()
    assert len(broker.world.results) == 1
