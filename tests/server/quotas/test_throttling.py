"""Throttled clients are answered immediately, with the time that they have to wait. Their connections are muted for this time, whether the
clients wait or not.

The bytes pass a real connection and a real dispatcher; the clock is moved by hand.
"""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.handlers.context import ConnectionInfo, Pending, RequestContext
from ottla.security.authorizer import AllowClients
from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.rates import Windows
from ottla.server.connection import Connection
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.memory.receive_buffer import SHARED_BYTES, ReceiveBuffers
from ottla.server.quotas.throttling import Throttling
from ottla.wire.apis import KEYS
from ottla.wire.codec import encoder
from ottla.wire.framing import load, write_request
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.fakes.world import World
from tests.server.connection_world import LIMITS, FakeChannel
from tests.server.responses import responses

PRODUCE, HEARTBEAT, LIST_GROUPS = KEYS["Produce"], KEYS["Heartbeat"], KEYS["ListGroups"]
SASL_AUTHENTICATE = KEYS["SaslAuthenticate"]


class ThrottlingWorld(World):
    """One connection of client `c`. Its requests get the `answers` in order; an answer that is a `Pending` is given later."""

    def __init__(self, **rates: float) -> None:
        self.quotas = ClientQuotas(self.clock.monotonic_ms, Windows(11, 1000), Windows(11, 1000))
        self.quotas.update({(("client-id", "c"),): rates})
        broker: Any = SimpleNamespace(
            config=BrokerConfig(), clock=self.clock, timers=self.timers, authorizer=AllowClients(),
            groups=SimpleNamespace(all_hosts=list),
        )
        self.dispatcher = Dispatcher(broker, self.waiters)
        self.throttling = Throttling(self.quotas, self.clock, self.timers)
        self.dispatcher.limit(self.throttling)
        self.executed: list[int] = []
        self.connect()
        self.answers: list[Any] = []
        self.spent_ms = 0

    def connect(self) -> None:
        """Opens a new connection, and uses it from now on."""
        self.channel = FakeChannel()
        self.info = ConnectionInfo(identity="test:1", host="test", listener="A")
        self.connection = Connection(self.dispatcher, ReceiveBuffers(), self.info, LIMITS, self.channel, self)
        self.channel.open(self.connection)
        self.asked: list[tuple[int, int]] = []

    def on_closed(self, connection: Connection) -> None: ...

    def on_storage_error(self, error: Exception) -> None:
        raise error

    def on_broken_invariant(self, error: AssertionError) -> None:
        raise error

    def handles(self, request: Any, version: int) -> None:
        """Makes this world answer such requests instead of the handler."""
        key = type(request).API_KEY
        if key << 16 | version in self.dispatcher.routes:
            return
        response_class = load(key)[1]
        route = self.dispatcher._route(key, version)

        def handle(_broker: object, _request: RequestContext, _body: object) -> Any:
            self.executed.append(key)
            self.clock.advance(self.spent_ms)
            return self.answers.pop(0) if self.answers else response_class()

        route.handle = handle

    def send(self, *requests: Any, client_id: str = "c") -> None:
        """Sends requests in one write."""
        data = b""
        for request in requests:
            key, version = type(request).API_KEY, type(request).VERSIONS[1]
            self.handles(request, version)
            self.asked.append((key, version))
            body = encoder(type(request), version)(request)
            data += write_request(key, version, len(self.asked), client_id, body)
        self.receive(data)

    def receive(self, data: bytes) -> None:
        self.unread = data
        self.pump()

    def pump(self) -> None:
        """Passes the rest of the sent bytes to the connection, as far as it reads."""
        while self.unread and self.channel.is_reading and not self.channel.is_closed:
            room = self.connection.buffer()
            count = min(len(room), len(self.unread))
            room[:count] = self.unread[:count]
            self.unread = self.unread[count:]
            self.connection.received(count)

    def responses(self) -> list[Any]:
        return responses(self.channel.sent, self.asked)

    def times(self) -> list[int]:
        return [response.throttle_time_ms for response in self.responses()]


def upload(size: int) -> ProduceRequest:
    """Returns a Produce of about `size` bytes."""
    data = PartitionProduceData(index=0, records=b"x" * (size - 60))
    return ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])])


def test_the_answer_comes_at_once_and_the_connection_is_muted_for_as_long() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(upload(2040))
    (throttle_ms,) = world.times()
    assert 10_000 < throttle_ms < 11_000
    assert not world.channel.is_reading
    world.timers.advance(throttle_ms - 1)
    assert not world.channel.is_reading
    world.timers.advance(1)
    assert world.channel.is_reading
    assert world.throttling.throttled_count == 0


@pytest.mark.parametrize("size", [500, 200_000])
def test_a_client_that_connects_again_waits_for_what_it_owes(size: int) -> None:
    """Formerly a connection was muted only after its first request, so each new connection could send one request of any size without
    waiting."""
    world = ThrottlingWorld(producer_byte_rate=1_000)
    world.send(upload(30_000))
    (owed_ms,) = world.times()
    world.channel.close()
    for _ in range(3):
        world.connect()
        world.send(upload(size))
        assert len(world.executed) == 1 and not world.channel.sent
        world.channel.close()
    world.connect()
    world.send(upload(size))
    for _ in range(2):
        world.timers.advance(owed_ms)
        world.pump()
    assert len(world.executed) == 2 and world.channel.sent


def test_a_large_frame_before_the_authentication_does_not_make_a_connection_old() -> None:
    """Formerly the first request after the authentication was executed without a delay, because the quota had been looked up before for the
    anonymous client."""
    world = ThrottlingWorld(producer_byte_rate=1_000)
    world.quotas.update({(("user", "alice"),): {"producer_byte_rate": 1_000.0}})
    world.info.authenticated("User:alice")
    world.send(upload(30_000))
    world.connect()
    world.info.is_authenticated = False
    world.send(SaslAuthenticateRequest(auth_bytes=b"x" * (SHARED_BYTES + 1)))
    assert world.executed == [PRODUCE, SASL_AUTHENTICATE]
    world.info.authenticated("User:alice")
    world.send(upload(500))
    assert world.executed == [PRODUCE, SASL_AUTHENTICATE]


def test_a_client_that_owes_nothing_is_served_on_a_new_connection() -> None:
    world = ThrottlingWorld(producer_byte_rate=1_000_000)
    for number in range(3):
        world.connect()
        world.send(upload(500))
        assert len(world.executed) == number + 1


def test_within_the_quota_and_without_one_nothing_happens() -> None:
    world = ThrottlingWorld(producer_byte_rate=1_000_000)
    world.send(upload(2040), HeartbeatRequest())
    world.send(upload(2040), client_id="other")
    assert world.times() == [0, 0, 0]
    assert world.channel.is_reading


def test_a_client_that_does_not_wait_is_held_by_muting_and_not_by_queueing() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(*[upload(1990)] * 20)
    assert len(world.executed) == 1, "what was read with the first request is not executed"
    read = len(world.unread)
    world.receive(world.unread + b"x" * 1_000_000)
    assert len(world.unread) == read + 1_000_000, "nothing more is read"
    assert world.connection.inbox.received_bytes <= SHARED_BYTES


def test_held_requests_are_executed_one_by_one_as_the_quota_allows() -> None:
    world = ThrottlingWorld(producer_byte_rate=1000)
    world.send(upload(9900), *[HeartbeatRequest(), upload(1000)] * 3)
    assert world.executed == [PRODUCE, HEARTBEAT, PRODUCE]
    world.timers.advance(1000)
    assert world.executed == [PRODUCE, HEARTBEAT, PRODUCE, HEARTBEAT, PRODUCE]
    world.timers.advance(60_000)
    assert world.executed == [PRODUCE, *[HEARTBEAT, PRODUCE] * 3]
    assert len(world.times()) == 7


def test_a_large_frame_is_charged_and_its_buffer_given_back() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(upload(SHARED_BYTES + 1), HeartbeatRequest())
    assert world.executed == [PRODUCE]
    assert not world.channel.is_reading
    world.timers.advance(world.times()[0])
    world.pump()
    assert world.executed == [PRODUCE, HEARTBEAT]


def test_the_time_of_requests_is_charged() -> None:
    world = ThrottlingWorld(request_percentage=10)
    world.spent_ms = 900
    world.send(HeartbeatRequest())
    assert world.times() == [0]
    world.spent_ms = 400
    world.send(HeartbeatRequest())
    assert 0 < world.times()[1] <= 1000
    assert not world.channel.is_reading


def test_an_answer_that_comes_later_says_how_much_is_left() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    pending = Pending()
    world.answers = [pending]
    world.send(upload(2040))
    assert not world.channel.is_reading and not world.channel.sent
    world.timers.advance(4000)
    pending.complete(ProduceResponse(responses=[]))
    (left_ms,) = world.times()
    assert 6000 < left_ms < 7000
    world.timers.advance(left_ms)
    assert world.channel.is_reading


@pytest.mark.parametrize("is_task", [False, True])
def test_an_answer_that_is_made_in_steps_or_by_another_request_says_how_much_is_left(is_task: bool) -> None:
    """Metadata has such answers when too many requests wait for an election. Formerly the connection was closed."""
    world = ThrottlingWorld(producer_byte_rate=100)
    made, later = Pending(), Pending()

    def task() -> Generator[None, None, ProduceResponse]:
        yield
        return ProduceResponse(responses=[])

    made.complete(task() if is_task else later)
    world.answers = [made]
    world.send(upload(2040))
    later.complete(ProduceResponse(responses=[]))
    world.timers.run_due()
    assert 10_000 < world.times()[0] < 11_000 and not world.channel.is_closed


def test_an_answer_that_comes_after_the_time_asks_for_nothing() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    pending = Pending()
    world.answers = [pending]
    world.send(upload(2040))
    world.timers.advance(20_000)
    pending.complete(ProduceResponse(responses=[]))
    assert world.times() == [0]


@pytest.mark.parametrize("is_later", [False, True])
def test_what_the_handler_or_another_broker_says_counts(is_later: bool) -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    pending = Pending()
    answer = HeartbeatResponse(error_code=ErrorCode.NONE)
    answer.throttle_time_ms = 700
    world.answers = [pending if is_later else answer]
    world.send(HeartbeatRequest())
    if is_later:
        pending.complete(answer)
    assert world.times() == [700]
    assert not world.channel.is_reading
    world.timers.advance(700)
    assert world.channel.is_reading


def test_the_longer_of_two_times_counts() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    first, second = Pending(), Pending()
    world.answers = [first, second]
    world.send(HeartbeatRequest(), HeartbeatRequest())
    for pending, throttle_ms in ((first, 500), (second, 900)):
        answer = HeartbeatResponse()
        answer.throttle_time_ms = throttle_ms
        pending.complete(answer)
    assert world.times() == [500, 900]
    world.timers.advance(899)
    assert not world.channel.is_reading
    world.timers.advance(1)
    assert world.channel.is_reading


def test_a_request_without_an_answer_is_throttled_too() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(HeartbeatRequest())
    route = next(iter(world.dispatcher.routes.values()))
    route.handle = lambda _broker, _request, _body: None
    world.quotas.charge_produce("User:ANONYMOUS", "c", 5000)
    world.send(upload(100))
    world.dispatcher.routes[PRODUCE << 16 | ProduceRequest.VERSIONS[1]].handle = lambda _broker, _request, _body: None
    world.timers.advance(60_000)
    world.quotas.charge_produce("User:ANONYMOUS", "c", 5000)
    world.send(upload(100))
    assert len(world.responses()) == 2
    assert not world.channel.is_reading


def test_brokers_are_exempt() -> None:
    world = ThrottlingWorld(producer_byte_rate=1, request_percentage=0.001)
    world.info.is_inter_broker = True
    world.spent_ms = 100
    world.send(upload(2040), HeartbeatRequest())
    world.timers.run_due()  # the first request took its whole turn
    assert world.times() == [0, 0]
    assert world.channel.is_reading


def test_other_quotas_free_those_that_are_muted() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(upload(200_000), HeartbeatRequest())
    assert world.executed == [PRODUCE]
    world.throttling.release_all()
    world.pump()
    assert world.executed == [PRODUCE, HEARTBEAT]
    assert world.timers.pending() == 0


def test_a_muted_connection_that_is_closed_leaves_nothing_behind() -> None:
    world = ThrottlingWorld(producer_byte_rate=100)
    world.send(upload(2040), HeartbeatRequest())
    assert world.timers.pending() == 1
    world.channel.close()
    assert (world.timers.pending(), world.throttling.throttled_count) == (0, 0)
    world.timers.advance(100_000)
    assert world.executed == [PRODUCE]


def test_a_forwarded_request_is_charged_where_it_is_executed() -> None:
    world = ThrottlingWorld(request_percentage=10)
    world.spent_ms = 1500
    request = ListGroupsRequest()
    world.handles(request, 3)
    route = world.dispatcher.routes[LIST_GROUPS << 16 | 3]
    context = RequestContext(3, "c", ConnectionInfo(identity="other", host="h", listener="A"))
    response = load(LIST_GROUPS)[1]()
    world.throttling.charge_forwarded(route, context, response, 1_500_000_000)
    assert response.throttle_time_ms == 1000
    assert world.throttling.throttled_count == 0
