"""The shell on a broker's loop, over channels in memory and timers that the test moves: no socket, no sleep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.core.procedure import Ask, AskAll, AskRolling, Open, Pause, Procedure
from ottla.client.core.sasl import exchange
from ottla.client.errors import (
    AuthenticationError,
    ConnectError,
    KafkaError,
    MalformedResponseError,
    RequestTimeoutError,
    UnknownTopicError,
)
from ottla.client.loop import LoopClient
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.core.talk import Answer, ScriptedPeer
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers

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
        """Delivers what the peer has answered; whether there was anything."""
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


class World:
    """A client, its network and its time."""

    def __init__(self, step: int = 1 << 30, *, script: dict[int, Answer] | None = None, **options: Any) -> None:
        self.timers = ManualTimers(ManualClock())
        self.network = MemoryNetwork(step)
        self.peer = self.network.peers[BROKER] = ScriptedPeer(script)
        self.client = LoopClient(self.network, self.timers, self.timers.clock, bootstrap=[BROKER], **options)
        self.results: list[tuple[Any, OttlaError | None]] = []

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
    world = World(step, script={HEARTBEAT: _heartbeat(1, 2, 3)})
    for _ in range(3):
        world.client.ask(BROKER, HeartbeatRequest(), world.done)
    assert world.results == []
    world.settle()
    assert [(answer.error_code, error) for answer, error in world.results] == [(1, None), (2, None), (3, None)]
    assert len(world.network.channels) == 1
    assert world.timers.pending() == 0


def test_an_address_that_refuses_is_named() -> None:
    world = World()
    world.client.ask(Address("away", 1), HeartbeatRequest(), world.done)
    world.settle()
    assert isinstance(world.error(), ConnectError)
    assert "cannot reach away:1: connection refused" in str(world.error())


def test_a_host_that_is_silent_is_given_up_at_the_deadline() -> None:
    world = World()
    world.network.is_silent = True
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.timers.advance(9_999)
    assert world.results == []
    world.timers.advance(1)
    assert "no answer in time" in str(world.error())


def test_a_late_answer_closes_the_connection_and_the_next_request_opens_another() -> None:
    world = World(script={HEARTBEAT: lambda _body, _version: None})
    world.client.ask(BROKER, HeartbeatRequest(), world.done, timeout_s=1)
    world.client.ask(BROKER, HeartbeatRequest(), world.done, timeout_s=5)
    world.settle()
    world.timers.advance(999)
    assert world.results == []
    world.timers.advance(1)
    (_, late), (_, behind) = world.results
    assert isinstance(late, RequestTimeoutError) and isinstance(behind, ConnectError)
    assert world.network.channels[0].is_closed
    world.peer.script[HEARTBEAT] = _heartbeat(0)
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    assert world.results[2][0].error_code == 0
    assert len(world.network.channels) == 2


def test_the_deadline_of_the_second_request_counts_once_the_first_is_answered() -> None:
    world = World(script={HEARTBEAT: lambda _body, _version: None})
    world.client.ask(BROKER, HeartbeatRequest(), world.done, timeout_s=5)
    world.settle()
    world.peer.script[HEARTBEAT] = _heartbeat(0)
    world.timers.advance(1_000)
    assert world.results == []
    world.timers.advance(4_000)
    assert isinstance(world.error(), RequestTimeoutError)


def test_a_peer_that_hangs_up_refuses_what_waits() -> None:
    world = World(script={HEARTBEAT: lambda _body, _version: None})
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    world.network.channels[0].receiver.closed()
    assert "b:9092 closed the connection" in str(world.error())


def test_another_answer_than_was_asked_for_closes_the_connection() -> None:
    world = World(script={HEARTBEAT: lambda _body, _version: b"\0\0\0\x05\0\0\0\x63\0"})
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    assert isinstance(world.error(), MalformedResponseError)
    assert world.network.channels[0].is_closed


def test_a_peer_that_does_not_accept_the_password_is_an_authentication_error() -> None:
    refusal = SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"])
    world = World(script={HANDSHAKE: lambda _body, _version: refusal}, new_exchange=lambda: exchange("PLAIN", "a", "b", ""))
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    assert isinstance(world.error(), AuthenticationError)


def test_closing_refuses_what_waits_and_what_comes_later() -> None:
    world = World(script={HEARTBEAT: lambda _body, _version: None})
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    world.client.close()
    world.client.ask(BROKER, HeartbeatRequest(), world.done)
    world.settle()
    assert [type(error) for _, error in world.results] == [ConnectError, ConnectError]
    assert world.timers.pending() == 0


def _metadata(*codes: int) -> Answer:
    """Metadata of topic `t`, which the first answers refuse with these codes."""
    left = deque(codes)

    def answer(_body: Any, _version: int) -> MetadataResponse:
        code = left.popleft() if left else 0
        partitions = [] if code else [MetadataResponsePartition(partition_index=0, leader_id=1)]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="b", port=9092)],
            topics=[MetadataResponseTopic(name="t", error_code=code, partitions=partitions)],
        )

    return answer


def test_a_procedure_waits_by_the_clock_between_its_tries() -> None:
    world = World(script={METADATA: _metadata(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE)})
    world.client.run(world.client.core.leader(TopicPartition("t", 0)), world.done)
    assert world.results == []
    world.settle()
    assert world.results == []
    world.timers.advance(20)
    world.settle()
    world.timers.advance(40)
    world.settle()
    assert world.results == [(1, None)]


def test_the_refusal_of_a_procedure_is_its_error() -> None:
    world = World(script={METADATA: _metadata(*[int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)] * 9)})
    world.client.run(world.client.core.topic("t"), world.done)
    world.settle()
    assert isinstance(world.error(), UnknownTopicError)


def test_an_error_can_be_caught_inside_a_procedure() -> None:
    world = World()

    def procedure() -> Procedure[str]:
        try:
            yield Open(Address("away", 1))
        except ConnectError as error:
            yield Pause(1.0)
            return f"caught: {error}"
        return "connected"

    world.client.run(procedure(), world.done)
    world.settle()
    world.timers.advance(1_000)
    ((result, error),) = world.results
    assert error is None and result.startswith("caught: cannot reach away:1")


def test_several_requests_leave_before_the_first_answer() -> None:
    world = World(script={HEARTBEAT: _heartbeat(1, 2)})

    def procedure() -> Procedure[list[Any]]:
        link = yield Open(BROKER, is_own=True)
        assert (yield AskAll(())) == []
        wrong = Ask(link, HeartbeatRequest(group_id="g" * 70_000))
        return (yield AskAll((Ask(link, HeartbeatRequest()), wrong, Ask(link, HeartbeatRequest()))))

    world.client.run(procedure(), world.done)
    world.settle()
    ((first, refused, second), error) = world.results[0]
    assert error is None
    assert (first.error_code, second.error_code) == (1, 2)
    assert isinstance(refused, KafkaError)


def test_requests_leave_as_answers_come_in() -> None:
    world = World(script={HEARTBEAT: _heartbeat(*range(1, 7))})
    noted: list[Any] = []

    def procedure() -> Procedure[str]:
        link = yield Open(BROKER, is_own=True)
        yield AskRolling(iter(()), noted.append)

        def asks() -> Iterator[Ask | None]:
            for number in range(6):
                yield Ask(link, HeartbeatRequest())
                if number >= 2:
                    yield None
                    assert len(noted) == number - 1
            yield Ask(link, HeartbeatRequest(group_id="g" * 70_000))

        yield AskRolling(asks(), noted.append)
        return "done"

    world.client.run(procedure(), world.done)
    world.settle()
    assert world.results == [("done", None)]
    assert [answer.error_code for answer in noted[:-1]] == list(range(1, 7))
    assert isinstance(noted[-1], KafkaError)
