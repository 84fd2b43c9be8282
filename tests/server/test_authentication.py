"""A connection that is not yet authenticated: which requests it may send, how many bytes, and what happens after a refused authentication.

The bytes pass a real dispatcher and the handlers of the three APIs; only the mechanism is a fake (`tests/fakes/sasl.py`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.broker_ports import Ages
from ottla.base.config import BrokerConfig, Endpoint
from ottla.base.errors import ErrorCode
from ottla.handlers.context import REQUESTS_BEFORE_AUTHENTICATION_MAX, ConnectionInfo
from ottla.security.audit import AuditLog
from ottla.security.authentication import Authentication
from ottla.security.authorizer import AllowClients
from ottla.security.principal import ANONYMOUS
from ottla.server.connection import Connection
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.execution.waiters import Waiters
from ottla.server.listener import Listeners
from ottla.server.memory.answer_memory import ConnectionLimits
from ottla.server.memory.receive_buffer import SHARED_BYTES, ReceiveBuffers
from ottla.wire.codec import encoder
from ottla.wire.framing import write_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from ottla.wire.schema import Request
from tests.fakes import ManualClock, ManualTimers
from tests.fakes.sasl import FakeExchange
from tests.server.connection_world import FakeChannel, RecordingOwner
from tests.server.responses import responses

LIMITS = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 20)
HANDSHAKE = SaslHandshakeRequest(mechanism="FAKE")
HELLO, ALICE, MALLORY = (SaslAuthenticateRequest(auth_bytes=token) for token in (b"hello", b"alice", b"mallory"))
ANYTHING = ListGroupsRequest()
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


class World(RecordingOwner):
    """One connection on a listener with the mechanism FAKE (or, with `is_open`, without any)."""

    def __init__(self, *, is_slow: bool = False, is_open: bool = False, settings: dict[str, str] | None = None) -> None:
        super().__init__()
        self.exchange = FakeExchange(is_slow=is_slow)
        self.channel = FakeChannel()
        clock = ManualClock()
        timers = ManualTimers(clock)
        waiters = Waiters(clock, timers)
        broker: Any = SimpleNamespace(
            config=BrokerConfig(settings), clock=clock, timers=timers, ages=Ages(clock, timers), authorizer=AllowClients(),
            audit=AuditLog(clock), cluster_identity=None,
            metadata=SimpleNamespace(cluster_id="c"), broker_id=1, groups=SimpleNamespace(all_hosts=list),
            reporting_clients=SimpleNamespace(has_subscriptions=False),
        )  # fmt: skip
        authentication = None if is_open else Authentication({"FAKE": lambda: self.exchange, "OTHER": FakeExchange})
        self.info = ConnectionInfo(identity="test:1", host="test", listener="SASL", authentication=authentication)
        self.connection = Connection(Dispatcher(broker, waiters), ReceiveBuffers(), self.info, LIMITS, self.channel, self)
        self.channel.open(self.connection)
        self.broker, self.clock, self.timers, self.config = broker, clock, timers, broker.config
        self.asked: list[tuple[int, int]] = []

    def refuse(self) -> None:
        """Advances the clock until a delayed refusal is sent."""
        self.timers.advance(self.config.connection_failed_authentication_delay_ms)

    def frame(self, request: Request) -> bytes:
        key, version = type(request).API_KEY, type(request).VERSIONS[1]
        self.asked.append((key, version))
        return write_request(key, version, len(self.asked), "client", encoder(type(request), version)(request))

    def send(self, *requests: Request) -> None:
        self.receive(b"".join(map(self.frame, requests)))

    def receive(self, data: bytes) -> None:
        while data and self.channel.is_reading and not self.channel.is_closed:
            room = self.connection.buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)

    def answers(self) -> list[Any]:
        """Returns the answers so far, in order."""
        return responses(self.channel.sent, self.asked)

    def codes(self) -> list[int]:
        return [answer.error_code for answer in self.answers()]


def test_a_client_authenticates_and_may_then_send_anything() -> None:
    world = World()
    world.send(VERSIONS, HANDSHAKE, HELLO)
    assert world.info.principal == ANONYMOUS and not world.info.is_authenticated
    world.send(ALICE)
    assert world.info.principal == "User:alice" and world.info.is_authenticated
    world.send(ANYTHING)
    assert world.codes() == [0, 0, 0, 0, 0] and not world.channel.is_closed
    assert [bytes(answer.auth_bytes) for answer in world.answers()[2:4]] == [b"who are you?", b"welcome"]


def test_what_comes_in_one_read_with_the_authentication_is_executed_behind_it() -> None:
    world = World()
    world.send(HANDSHAKE, HELLO, ALICE, ANYTHING, ANYTHING)
    assert world.codes() == [0, 0, 0, 0, 0] and world.info.principal == "User:alice"


@pytest.mark.parametrize("before", [[], [HANDSHAKE], [HANDSHAKE, HELLO]])
def test_any_other_request_closes_the_connection(before: list[Request], caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send(*before, ANYTHING, ALICE)
    assert world.channel.is_closed and world.info.principal == ANONYMOUS
    assert "before authentication" in caplog.text


@pytest.mark.parametrize("split", [4, 14, 1000, SHARED_BYTES])
def test_another_request_may_not_come_as_a_large_frame_either(split: int) -> None:
    world = World()
    frame = world.frame(VERSIONS)
    large = (100_000).to_bytes(4, "big") + world.frame(ANYTHING)[4:14] + bytes(100_000 - 10)
    world.receive(frame + large[:split])
    world.receive(large[split:])
    assert world.channel.is_closed


def test_a_frame_is_smaller_before_authentication(caplog: pytest.LogCaptureFixture) -> None:
    largest = LIMITS.unauthenticated_frame_bytes_max
    world = World()
    world.send(HANDSHAKE)
    world.receive(largest.to_bytes(4, "big") + b"\0\x24")
    assert not world.channel.is_closed
    for data in ((largest + 1).to_bytes(4, "big"), b"\0\0\0\x01", b"GET / HTTP/1.1\r\n"):
        world = World()
        world.send(HANDSHAKE)
        world.receive(data + b"\0\x24")
        assert world.channel.is_closed
    assert "bytes is outside" in caplog.text and "HTTP" in caplog.text


def test_nothing_is_executed_while_a_step_is_under_way() -> None:
    world = World(is_slow=True)
    world.send(HANDSHAKE, ALICE, ANYTHING)
    assert world.codes() == [0] and not world.channel.is_reading
    world.exchange.finish()
    assert world.codes() == [0, 0, 0] and world.channel.is_reading
    assert world.info.principal == "User:alice"


def test_a_slow_step_holds_up_what_is_read_later() -> None:
    world = World(is_slow=True)
    world.send(HANDSHAKE, ALICE)
    later = world.frame(ANYTHING)
    assert not world.channel.is_reading
    world.exchange.finish()
    world.receive(later)
    assert world.codes() == [0, 0, 0]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_refused_client_gets_its_answer_and_nothing_further(is_slow: bool) -> None:
    world = World(is_slow=is_slow)
    world.send(HANDSHAKE, MALLORY, ALICE, ANYTHING)
    world.exchange.finish()
    assert world.codes() == [0] and not world.channel.is_closed, "a refusal takes its time"
    world.refuse()
    assert world.codes() == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]
    assert world.channel.is_closed and world.ended == ["closed"] and world.info.principal == ANONYMOUS


def test_a_refused_client_that_does_not_read_is_closed_when_it_has() -> None:
    world = World()
    world.channel.queued_bytes = 10
    world.send(SaslHandshakeRequest(mechanism="PLAIN"))
    assert not world.channel.is_closed and not world.channel.is_reading
    world.channel.queued_bytes = 0
    world.connection.drained()
    assert world.channel.is_closed
    (answer,) = world.answers()
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and answer.mechanisms == ["FAKE", "OTHER"]


def test_a_token_before_the_handshake_is_refused() -> None:
    world = World()
    world.send(ALICE)
    world.refuse()
    assert world.codes() == [ErrorCode.ILLEGAL_SASL_STATE] and world.channel.is_closed


def test_after_authentication_a_token_needs_another_handshake() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, ALICE, ANYTHING)
    assert world.codes() == [0, 0, ErrorCode.ILLEGAL_SASL_STATE, 0]


def test_a_client_authenticates_again_and_stays_who_it_is() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, HANDSHAKE, HELLO, ALICE, ANYTHING)
    world.timers.advance(1)
    assert world.codes() == [0] * 6 and world.info.principal == "User:alice" and world.info.is_authenticated


def test_while_a_client_authenticates_again_nothing_else_is_executed() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, HANDSHAKE)
    world.send(ANYTHING)
    assert world.codes() == [0, 0, 0] and world.channel.is_closed


def test_a_slow_step_of_another_authentication_holds_up_what_is_behind_it() -> None:
    world = World(is_slow=True)
    world.send(HANDSHAKE, ALICE)
    world.exchange.finish()
    world.send(HANDSHAKE, ALICE, ANYTHING)
    world.timers.advance(1)
    assert world.codes() == [0, 0, 0]
    world.exchange.finish()
    assert world.codes() == [0] * 5


def test_a_client_that_authenticates_again_as_another_is_closed() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, HANDSHAKE, SaslAuthenticateRequest(auth_bytes=b"bob"), ANYTHING)
    world.timers.advance(1)
    world.refuse()
    assert world.codes() == [0, 0, 0, ErrorCode.SASL_AUTHENTICATION_FAILED] and world.channel.is_closed
    assert "change principals" in world.answers()[-1].error_message and world.info.principal == "User:alice"


def test_another_mechanism_is_refused_with_its_first_token() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, SaslHandshakeRequest(mechanism="OTHER"), ALICE)
    world.timers.advance(1)
    world.refuse()
    assert world.codes() == [0, 0, 0, ErrorCode.SASL_AUTHENTICATION_FAILED] and world.channel.is_closed
    assert "re-authentication of mechanism 'FAKE'" in world.answers()[-1].error_message


def test_an_unknown_mechanism_ends_another_authentication_at_once() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, SaslHandshakeRequest(mechanism="UNKNOWN"))
    assert world.codes() == [0, 0, ErrorCode.UNSUPPORTED_SASL_MECHANISM] and world.channel.is_closed


def test_more_than_one_authentication_in_a_second_is_refused() -> None:
    world = World()
    world.send(HANDSHAKE, ALICE, HANDSHAKE, ALICE)
    world.timers.advance(1)
    world.send(HANDSHAKE)
    assert world.codes() == [0] * 4 + [ErrorCode.ILLEGAL_SASL_STATE] and world.info.is_authenticated
    world.timers.advance(1000)
    world.send(HANDSHAKE, ALICE)
    world.timers.advance(1)
    assert world.codes()[5:] == [0, 0] and world.info.is_authenticated


def test_a_session_ends_and_the_client_must_authenticate_again() -> None:
    world = World(settings={"connections.max.reauth.ms": "5000"})
    world.send(HANDSHAKE, ALICE, ANYTHING)
    assert world.answers()[1].session_lifetime_ms == 5000
    world.timers.advance(4999)
    world.send(ANYTHING)
    world.timers.advance(1)
    assert not world.info.is_authenticated and not world.channel.is_closed
    world.send(VERSIONS, HANDSHAKE, ALICE, ANYTHING)
    world.timers.advance(1)
    assert world.codes() == [0] * 8
    world.timers.advance(5000)
    world.send(ANYTHING)
    assert world.channel.is_closed and len(world.answers()) == 8


def test_an_early_authentication_begins_a_new_session() -> None:
    world = World(settings={"connections.max.reauth.ms": "5000"})
    world.send(HANDSHAKE, ALICE)
    world.timers.advance(4000)
    world.send(HANDSHAKE, ALICE)
    world.timers.advance(4000)
    world.send(ANYTHING)
    assert world.codes() == [0] * 5 and not world.channel.is_closed


@pytest.mark.parametrize("request_", [VERSIONS, HANDSHAKE])
@pytest.mark.parametrize("at_once", [1, 100])
def test_a_client_that_does_not_authenticate_may_send_a_few_requests(
    request_: Request, at_once: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Formerly a client could send ApiVersions requests without end and without a login, which delayed other clients."""
    world = World()
    for _ in range(100 // at_once):
        world.send(*[request_] * at_once)
    assert world.channel.is_closed and len(world.answers()) <= REQUESTS_BEFORE_AUTHENTICATION_MAX
    if request_ is VERSIONS:
        assert "more than 20 requests before authentication" in caplog.text


def test_each_authentication_may_take_a_few_requests() -> None:
    world = World(settings={"connections.max.reauth.ms": "5000"})
    for _ in range(5):
        world.send(*[VERSIONS] * 8, HANDSHAKE, HELLO, ALICE)
        world.timers.advance(1)
        world.send(*[VERSIONS] * 50)
        world.timers.advance(5000)
    assert not world.channel.is_closed and len(world.answers()) == 5 * 61


def test_a_listener_without_mechanisms_asks_for_nothing() -> None:
    world = World(is_open=True)
    world.send(ANYTHING, HANDSHAKE, ALICE, ANYTHING)
    assert world.codes() == [0, ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.ILLEGAL_SASL_STATE, 0]


class Network:
    """A network with one listening address. `arrive` connects a client."""

    port = 9092

    def listen(self, host: str, port: int, backlog: int) -> Network:
        return self

    def accept(self, arrived: Any) -> None:
        self.arrive = arrived

    def close(self) -> None: ...


def test_a_connection_authenticates_in_time_or_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig()
    network = Network()
    clock = ManualClock()
    timers = ManualTimers(clock)
    broker: Any = SimpleNamespace(config=config, clock=clock, timers=timers)
    listeners = Listeners(
        network, config, Dispatcher(broker, Waiters(clock, timers)),
        lambda error: None, lambda error: None, mechanisms=lambda _endpoint: {"FAKE": FakeExchange},
    )  # fmt: skip
    listeners.bind([Endpoint("PLAINTEXT", "127.0.0.1", 0)])
    listeners.start()
    late, in_time = FakeChannel(), FakeChannel()
    network.arrive(late)
    network.arrive(in_time)
    list(listeners.connections)[1].info.authenticated("User:alice")
    for _ in range(config.ottla_authentication_timeout_ms // config.ottla_tick_interval_ms):
        listeners.relieve()
    assert not late.is_closed
    listeners.relieve()
    assert late.is_closed and not in_time.is_closed and len(listeners.connections) == 1
    assert "did not authenticate in time" in caplog.text


def authenticating_listeners(settings: dict[str, str]) -> tuple[Network, Listeners]:
    config, network, clock = BrokerConfig(settings), Network(), ManualClock()
    timers = ManualTimers(clock)
    broker: Any = SimpleNamespace(config=config, clock=clock, timers=timers)
    listeners = Listeners(
        network, config, Dispatcher(broker, Waiters(clock, timers)),
        lambda error: None, lambda error: None, mechanisms=lambda _endpoint: {"FAKE": FakeExchange},
    )  # fmt: skip
    listeners.bind([Endpoint("PLAINTEXT", "127.0.0.1", 0)])
    listeners.start()
    return network, listeners


def test_among_too_many_that_authenticate_the_oldest_goes(caplog: pytest.LogCaptureFixture) -> None:
    network, listeners = authenticating_listeners({"ottla.connections.unauthenticated.max": "2"})
    channels = [FakeChannel() for _ in range(3)]
    network.arrive(channels[0])
    next(iter(listeners.connections)).info.authenticated("User:alice")
    for channel in channels[1:]:
        network.arrive(channel)
    assert [channel.is_closed for channel in channels] == [False, False, False], "who is authenticated does not count"
    network.arrive(FakeChannel())
    assert [channel.is_closed for channel in channels] == [False, True, False] and len(listeners.connections) == 3
    assert "too many connections authenticate" in caplog.text


def test_a_client_whose_credentials_are_gone_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    network, listeners = authenticating_listeners({})
    gone, stays, new = FakeChannel(), FakeChannel(), FakeChannel()
    for channel in (gone, stays, new):
        network.arrive(channel)
    for connection, name in zip(listeners.connections, ("eve\n", "bob"), strict=False):
        authentication = connection.info.authentication
        assert authentication is not None
        authentication.principal = name
        authentication.is_valid = lambda name=name: name == "bob"  # type: ignore[misc]
    listeners.recheck()
    assert [channel.is_closed for channel in (gone, stays, new)] == [True, False, False]
    assert "may not log in any more" in caplog.text

