"""A connection on a broker's loop, over channels in memory and timers that the test moves: no socket, no sleep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.base.errors import OttlaError
from ottla.client.addresses import Address
from ottla.client.core.sasl import SaslExchange, exchange
from ottla.client.errors import (
    AuthenticationError,
    ConnectError,
    MalformedResponseError,
    RequestTimeoutError,
)
from ottla.server.peer_connection import LoopConnection
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.core.talk import Answer, ScriptedPeer
from tests.fakes.world import World

HEARTBEAT, METADATA, HANDSHAKE = 12, 3, 17
BROKER = Address("b", 9092)


class MemoryChannel:
    """Carries bytes between the client and a scripted peer, one `deliver` at a time, in pieces of `step` bytes."""

    def __init__(self, peer: ScriptedPeer, step: int) -> None:
        self.peer = peer
        self.step = step
        self.receiver: Any = None
        self.is_closed = False
        self._arriving: deque[bytes] = deque()

    def open(self, receiver: Any) -> None:
        self.receiver = receiver

    def send(self, parts: Sequence[bytes]) -> None:
        assert not self.is_closed, "nothing is sent on a closed channel"
        self._arriving.append(self.peer.answer(b"".join(parts)))

    def close(self) -> None:
        self.is_closed = True

    def deliver(self) -> bool:
        """Delivers the peer's answers. Returns whether there were any."""
        if not self._arriving:
            return False
        data = self._arriving.popleft()
        while data and not self.is_closed:
            room = self.receiver.buffer()
            count = min(len(room), len(data), self.step)
            room[:count] = data[:count]
            data = data[count:]
            self.receiver.received(count)
        return True


class MemoryNetwork:
    """Connects to peers by address; an address without a peer is refused."""

    def __init__(self, step: int = 1 << 30) -> None:
        self.step = step
        self.peers: dict[Address, ScriptedPeer] = {}
        self.channels: list[MemoryChannel] = []
        self.is_silent = False

    def connect(self, host: str, port: int, connected: Callable[[Any], None], failed: Callable[[str], None]) -> None:
        if self.is_silent:
            return
        peer = self.peers.get(Address(host, port))
        if peer is None:
            failed("connection refused")
            return
        channel = MemoryChannel(peer, self.step)
        self.channels.append(channel)
        connected(channel)


class PeerWorld(World):
    """Connections by address, which are opened at the first request, with their network and their clock."""

    def __init__(
        self,
        step: int = 1 << 30,
        *,
        script: dict[int, Answer] | None = None,
        new_exchange: Callable[[], SaslExchange | None] = lambda: None,
        timeout_s: float = 30.0,
    ) -> None:
        self.network = MemoryNetwork(step)
        self.peer = self.network.peers[BROKER] = ScriptedPeer(script)
        self.new_exchange = new_exchange
        self.connections: dict[Address, LoopConnection] = {}
        self.results: list[tuple[Any, OttlaError | None]] = []
        self._timeout_s = timeout_s

    def ask(self, address: Address = BROKER, *, timeout_s: float | None = None) -> None:
        known = self.connections.get(address)
        if known is None or known.is_closed:
            self._begin_login(lambda exchange, error: self._open(address, exchange, error, timeout_s))
        else:
            self._ask(known, timeout_s)

    def _open(self, address: Address, exchange: SaslExchange | None, error: OttlaError | None, timeout_s: float | None) -> None:
        if error is not None:
            self.timers.call_soon(lambda: self.done(None, error))
            return
        connection = self.connections[address] = LoopConnection(
            address, self.network, self.timers, self.clock, sasl=exchange, begin_login=self._begin_login
        )
        self._ask(connection, timeout_s)

    def _ask(self, connection: LoopConnection, timeout_s: float | None) -> None:
        def go_on(_connection: Any, error: OttlaError | None) -> None:
            if error is None:
                connection.request(HeartbeatRequest(), self.done, timeout_s=self._timeout_s if timeout_s is None else timeout_s)
            else:
                self.done(None, error)

        connection.open(go_on)

    def _begin_login(self, done: Callable[[SaslExchange | None, OttlaError | None], object]) -> None:
        try:
            exchange = self.new_exchange()
        except OttlaError as error:
            done(None, error)
        else:
            done(exchange, None)

    def done(self, answer: Any, error: OttlaError | None) -> None:
        self.results.append((answer, error))

    def settle(self) -> None:
        """Runs timers that are due and delivers bytes until nothing moves."""
        while self.timers.run_due() or any(channel.deliver() for channel in self.network.channels if not channel.is_closed):
            pass

    def error(self) -> OttlaError:
        (found,) = [error for _, error in self.results if error is not None]
        return found


def _heartbeat(*codes: int) -> Answer:
    left = iter(codes)
    return lambda _body, _version: HeartbeatResponse(error_code=next(left))


@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_requests_share_a_connection_and_get_their_own_answers(step: int) -> None:
    world = PeerWorld(step, script={HEARTBEAT: _heartbeat(1, 2, 3)})
    for _ in range(3):
        world.ask()
    assert world.results == []
    world.settle()
    assert [(answer.error_code, error) for answer, error in world.results] == [(1, None), (2, None), (3, None)]
    assert len(world.network.channels) == 1
    world.timers.advance(30_000)  # the first request's timer fires after the answer
    assert world.timers.pending() == 0 and not world.network.channels[0].is_closed


@pytest.mark.parametrize(("pause_ms", "timeout_s"), [(1_000, 2.0), (20_000, 30.0)])
def test_a_request_behind_an_answered_one_times_out_at_its_own_deadline(pause_ms: int, timeout_s: float) -> None:
    """The deadline is before or after the one that the timer of the first request was set for."""
    answers = _heartbeat(1)
    silent: Answer = lambda body, version: answers(body, version) if not world.results else None  # noqa: E731
    world = PeerWorld(script={HEARTBEAT: silent})
    world.ask(timeout_s=30.0)
    world.settle()
    world.timers.advance(pause_ms)
    world.ask(timeout_s=timeout_s)
    world.settle()
    world.timers.advance(int(timeout_s * 1000) - 1)
    assert len(world.results) == 1
    world.timers.advance(1)
    assert isinstance(world.error(), RequestTimeoutError) and world.network.channels[0].is_closed


def test_an_address_that_refuses_is_named() -> None:
    world = PeerWorld()
    world.ask(Address("away", 1))
    world.settle()
    assert isinstance(world.error(), ConnectError)
    assert "cannot reach away:1: connection refused" in str(world.error())


def test_a_host_that_is_silent_is_given_up_at_the_deadline() -> None:
    world = PeerWorld()
    world.network.is_silent = True
    world.ask()
    world.timers.advance(9_999)
    assert world.results == []
    world.timers.advance(1)
    assert "no answer in time" in str(world.error())


def test_a_late_answer_closes_the_connection_and_the_next_request_opens_another() -> None:
    world = PeerWorld(script={HEARTBEAT: lambda _body, _version: None})
    world.ask(timeout_s=1)
    world.ask(timeout_s=5)
    world.settle()
    world.timers.advance(999)
    assert world.results == []
    world.timers.advance(1)
    (_, late), (_, behind) = world.results
    assert isinstance(late, RequestTimeoutError) and isinstance(behind, ConnectError)
    assert world.network.channels[0].is_closed
    world.peer.script[HEARTBEAT] = _heartbeat(0)
    world.ask()
    world.settle()
    assert world.results[2][0].error_code == 0
    assert len(world.network.channels) == 2


def test_the_deadline_of_the_second_request_counts_once_the_first_is_answered() -> None:
    world = PeerWorld(script={HEARTBEAT: lambda _body, _version: None})
    world.ask(timeout_s=5)
    world.settle()
    world.peer.script[HEARTBEAT] = _heartbeat(0)
    world.timers.advance(1_000)
    assert world.results == []
    world.timers.advance(4_000)
    assert isinstance(world.error(), RequestTimeoutError)


def test_a_peer_that_hangs_up_refuses_what_waits() -> None:
    world = PeerWorld(script={HEARTBEAT: lambda _body, _version: None})
    world.ask()
    world.settle()
    world.network.channels[0].receiver.closed()
    assert "b:9092 closed the connection" in str(world.error())


def test_another_answer_than_was_asked_for_closes_the_connection() -> None:
    world = PeerWorld(script={HEARTBEAT: lambda _body, _version: b"\0\0\0\x05\0\0\0\x63\0"})
    world.ask()
    world.settle()
    assert isinstance(world.error(), MalformedResponseError)
    assert world.network.channels[0].is_closed


def test_a_peer_that_does_not_accept_the_password_is_an_authentication_error() -> None:
    refusal = SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"])
    world = PeerWorld(script={HANDSHAKE: lambda _body, _version: refusal}, new_exchange=lambda: exchange("PLAIN", "a", "b", ""))
    world.ask()
    world.settle()
    assert isinstance(world.error(), AuthenticationError)


def test_closing_refuses_what_waits_and_what_comes_later() -> None:
    world = PeerWorld(script={HEARTBEAT: lambda _body, _version: None})
    world.ask()
    world.settle()
    world.connections[BROKER].close()
    world.connections[BROKER].request(HeartbeatRequest(), world.done)
    world.settle()
    assert [type(error) for _, error in world.results] == [ConnectError, ConnectError]
    assert world.timers.pending() == 0
