"""Routes: which requests are executed, and which close their connection."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.errors import WireError
from ottla.handlers.context import Pending, RequestContext
from ottla.server.execution.dispatch import Dispatcher, for_extended_connections
from ottla.server.execution.route import Route
from ottla.server.execution.scheduler import COSTLY_NS, HEAVY_NS, LARGE_BYTES, SLICE_NS, SLICE_NS_MIN
from ottla.server.execution.waiters import Waiters
from ottla.server.memory.receive_buffer import SHARED_BYTES
from ottla.wire.codec import encoder
from ottla.wire.framing import header_reader, write_request
from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.fakes.timers import ManualTimers
from tests.server.quotas.test_throttling import ThrottlingWorld

FIRST_KEY = 18


def test_an_extension_is_unknown_to_a_connection_that_has_not_asked() -> None:
    handled: list[object] = []
    handle = for_extended_connections(20000, lambda _broker, _request, body: handled.append(body))
    request: Any = SimpleNamespace(connection=SimpleNamespace(has_extensions=False))
    with pytest.raises(WireError, match="unknown api key 20000"):
        handle(None, request, "a body")
    assert handled == []
    request.connection.has_extensions = True
    handle(None, request, "a body")
    assert handled == ["a body"]


class Clients:
    """Connections that send requests of several kinds. Each kind takes a fixed time on a clock that only these requests advance."""

    def __init__(self, *cost_ns: int) -> None:
        """The API keys are 0, 1 and so on, in the order of `cost_ns`."""
        self.now_ns = 0
        self.timers = ManualTimers()
        clock: Any = SimpleNamespace(nanoseconds=lambda: self.now_ns, monotonic_ms=lambda: self.now_ns // 1_000_000)
        self.dispatcher = Dispatcher(cast(Any, SimpleNamespace(clock=clock, timers=self.timers)), Waiters(clock, self.timers))
        self._frames = []
        for key, cost in enumerate(cost_ns, FIRST_KEY):
            self.dispatcher.routes[key << 16] = self._route(key, cost)
            self._frames.append(memoryview(write_request(key, 0, 1, "flood", b""))[4:])

    def _route(self, key: int, cost_ns: int) -> Route:
        def handle(_broker: object, _request: RequestContext, _body: bytes) -> None:
            self.now_ns += cost_ns

        fake = SimpleNamespace(
            key=key, version=0, has_request_tags=False, plain_bytes_max=1 << 20, is_amplified=False, cost_ns=0, nanoseconds=0,
            immediate=[0] * 64, handle=handle, decode=lambda frame, at: (b"", len(frame)),
        )  # fmt: skip
        return cast(Route, fake)

    def connection(self) -> Any:
        return SimpleNamespace(
            read_header=header_reader(2), client_id_bytes=b"", header_bytes=0, contexts={}, client_id=None, info=None, cost_ns=0,
        )  # fmt: skip

    def send(self, connection: Any, kind: int = 0, count: int = 1, size: int = 0) -> None:
        """Executes the requests of one read, as a connection does: in a crowded iteration of the loop a request that is likely to be costly
        waits. `size` is the claimed size of the frames."""
        frame = self._frames[kind]

        def execute() -> None:
            self.dispatcher.scheduler.begin_batch()
            any(self.dispatcher.execute(connection, frame) for _ in range(count))
            self.dispatcher.scheduler.end_batch()

        if self.dispatcher.scheduler.is_crowded and self.dispatcher.is_likely_costly(connection, frame, 0, size or len(frame)):
            connection.resume = execute
            self.dispatcher.scheduler.resume_later(connection)
        else:
            execute()


def test_a_connection_has_one_change_of_metadata_under_way_at_a_time() -> None:
    """Formerly a client could have a thousand changes executed before the change of any other client, although a slow disk had to write
    each."""
    world, pendings = ThrottlingWorld(), [Pending() for _ in range(3)]
    change, heartbeat = AlterClientQuotasRequest(entries=[], validate_only=False), HeartbeatRequest(group_id="g", member_id="m")
    key, done = change.API_KEY, AlterClientQuotasResponse(entries=[])
    world.answers = [pendings[0], pendings[1], HeartbeatResponse(), pendings[2]]
    world.send(change, change, heartbeat, change)
    assert world.executed == [key]
    pendings[0].complete(done)
    assert world.executed == [key, key], "the second has begun, and holds up the rest"
    pendings[1].complete(done)
    assert world.executed == [key, key, heartbeat.API_KEY, key]
    world.connection.closed()
    pendings[2].complete(done)
    assert [type(response) for response in world.responses()] == [type(done), type(done), HeartbeatResponse]


def test_a_change_that_waits_behind_another_is_not_begun_while_the_broker_stops() -> None:
    world, pending, idle = ThrottlingWorld(), Pending(), list[object]()
    change = AlterClientQuotasRequest(entries=[], validate_only=False)
    world.answers = [pending]
    world.send(change, change)
    world.connection.finish(idle.append)
    assert idle == []
    pending.complete(AlterClientQuotasResponse(entries=[]))
    assert idle == [world.connection] and world.executed == [change.API_KEY]
    assert len(world.responses()) == 1, "it was answered"


def test_metadata_that_creates_topics_is_a_change_and_other_metadata_is_none() -> None:
    """Formerly a client could have as many topics created at the same time as it had requests in flight."""
    world, waiting, creating = ThrottlingWorld(), Pending(), Pending(is_change=True)
    ask = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    world.answers = [waiting, creating, MetadataResponse()]
    world.send(ask, ask, ask)
    assert len(world.executed) == 2
    waiting.complete(MetadataResponse())
    assert len(world.executed) == 2
    creating.complete(MetadataResponse())
    assert len(world.executed) == 3
    assert len(world.responses()) == 3


@pytest.mark.parametrize("answer", [KeyError("a mistake of ours"), object()], ids=["no answer", "one that cannot be encoded"])
def test_a_request_that_fails_while_it_waits_closes_its_connection(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    """Formerly the exception reached the code that had ended the wait. The request's connection stayed open and answered nothing more."""
    world, pending = ThrottlingWorld(), Pending()
    world.dispatcher.limit(None)
    world.answers = [pending]
    world.send(AlterClientQuotasRequest(entries=[], validate_only=False), HeartbeatRequest(group_id="g", member_id="m"))
    if isinstance(answer, Exception):
        pending.fail(answer)
    else:
        pending.complete(answer)
    assert world.channel.is_closed and world.responses() == []
    assert [record.message for record in caplog.records] == ["closing test:1: a request failed"]
    with pytest.raises(KeyError):
        pending.fail(KeyError("there has been an answer: this goes to the log"))


def test_a_request_that_has_failed_already_closes_its_connection_with_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    """Formerly the dispatcher encoded the exception as if it were a response."""
    world, pending, failure = ThrottlingWorld(), Pending(), KeyError("a mistake of ours")
    pending.fail(failure)
    world.dispatcher.limit(None)
    world.answers = [pending]
    world.send(HeartbeatRequest(group_id="g", member_id="m"))
    assert world.channel.is_closed
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [failure]


@pytest.mark.parametrize("is_later", [False, True], ids=["a step", "what it waits for"])
def test_a_large_forwarded_request_that_fails_ends_without_an_answer(is_later: bool) -> None:
    """Formerly the broker that had forwarded the request waited until the client's timeout."""
    world, ended, pending, failure = ThrottlingWorld(), list[object](), Pending(), KeyError("a mistake of ours")
    body = CreateTopicsRequest(topics=[CreatableTopic(name="t" * 200) for _ in range(SHARED_BYTES // 200)])
    key, version = body.API_KEY, body.VERSIONS[1]
    frame = write_request(key, version, 1, "c", encoder(CreateTopicsRequest, version)(body))[4:]

    def fail(_broker: object, _request: object, _body: object) -> Iterator[None]:
        yield
        raise failure

    world.dispatcher._route(key, version).handle = (lambda *_given: pending) if is_later else fail
    world.dispatcher.execute_forwarded(bytes(frame), world.info, ended.append)
    world.timers.run_due()
    if is_later:
        pending.fail(failure)
        world.timers.run_due()
    assert ended == [failure]


def test_many_connections_of_cheap_requests_share_one_turn_of_the_loop() -> None:
    """Formerly each connection had a time slice of ten milliseconds, whatever the others had used. Fifty connections with a hundred
    requests each delayed all clients."""
    cost_ns = 20_000
    clients = Clients(cost_ns)

    def turn(connections: int) -> int:
        """Returns the time that the connections take in one iteration of the loop, after each has sent a hundred requests."""
        began_ns = clients.now_ns
        for _ in range(connections):
            clients.send(clients.connection(), count=100)
        clients.timers.run_due()
        return clients.now_ns - began_ns

    assert turn(1) == 100 * cost_ns
    assert turn(50) <= SLICE_NS + 50 * (SLICE_NS_MIN + 2 * cost_ns)
    assert turn(1) == 100 * cost_ns, "the next turn is another one"


@pytest.mark.parametrize("is_first", [False, True])
def test_one_request_of_each_of_many_connections_does_not_fill_a_turn_of_the_loop(is_first: bool) -> None:
    """Formerly each request was too cheap to be measured as costly, and three hundred of them ran before the request of any other
    client."""
    clients = Clients(200_000, 20_000)
    many, honest = [clients.connection() for _ in range(300)], clients.connection()
    waits = []
    for _ in range(5):
        if is_first:
            many = [clients.connection() for _ in range(300)]
        turn_began_ns = clients.now_ns
        for connection in many:
            clients.send(connection)
        began_ns = clients.now_ns
        clients.send(honest, kind=1)
        waits.append(began_ns - turn_began_ns)
        assert clients.now_ns - began_ns == 20_000, "what is cheap does not wait"
        clients.timers.run_due()
    assert waits[0] <= SLICE_NS, "at first what it costs is not known"
    assert max(waits[1:]) <= 2 * HEAVY_NS


@pytest.mark.parametrize(("warm", "size"), [(40, 0), (0, LARGE_BYTES + 1)], ids=["a dear kind", "large requests"])
def test_a_connection_whose_cost_is_unknown_waits_behind_cheaper_ones(warm: int, size: int) -> None:
    """Formerly new connections were treated as cheap, so a connection with a small measured cost waited behind hundreds of them."""
    clients = Clients(HEAVY_NS, 2 * COSTLY_NS)
    known = clients.connection()
    for _ in range(40):
        clients.send(known, kind=1)
        clients.timers.run_due()
    for _ in range(warm):
        clients.send(clients.connection())
        clients.timers.run_due()
    for _ in range(100):
        clients.send(clients.connection(), size=size)
    began_ns = clients.now_ns
    ends_ns: list[int] = []
    clients.send(known, kind=1)
    resume = known.resume

    def resume_and_note() -> None:
        resume()
        ends_ns.append(clients.now_ns)

    known.resume = resume_and_note
    clients.timers.run_due()
    assert ends_ns[0] - began_ns < SLICE_NS


@pytest.mark.parametrize("has_tags", [False, True])
def test_client_ids_that_change_within_a_connection(has_tags: bool) -> None:
    """Each request has its own client id, although the header reader expects the length of the last one. The last id may be longer than the
    whole next request."""
    timers = ManualTimers()
    broker: Any = SimpleNamespace(clock=timers.clock, timers=timers)
    dispatcher = Dispatcher(broker, Waiters(timers.clock, timers))
    seen: list[tuple[str | None, bytes]] = []

    def handle(_broker: object, request: RequestContext, body: bytes) -> None:
        seen.append((request.client_id, body))

    key, version = (18, 3) if has_tags else (18, 0)
    dispatcher.routes[key << 16 | version] = cast(
        Route,
        SimpleNamespace(
            version=version, has_request_tags=has_tags, plain_bytes_max=1 << 20, is_amplified=False, cost_ns=0, nanoseconds=0,
            immediate=[0] * 64, handle=handle, decode=lambda frame, at: (bytes(frame[at:]), len(frame)),
        ),
    )  # fmt: skip
    connection: Any = SimpleNamespace(
        read_header=header_reader(2),
        client_id_bytes=b"",
        header_bytes=0,
        contexts={},
        client_id=None,
        info=None,
        cost_ns=0,
    )
    wanted = [("a" * 200, b"1"), (None, b""), ("", b"2"), ("b", b""), ("ab", b"3"), ("a" * 200, b"4"), (None, b"5"), (None, b"6")]
    wanted += [("c" * 255, b"7"), ("é" * 255, b"8"), ("c" * 255, b"9")]
    dispatcher.scheduler.begin_batch()
    for client_id, body in wanted:
        dispatcher.execute(connection, memoryview(write_request(key, version, 1, client_id, body))[4:])
    assert seen == wanted
    for body in (b"1", b"2"):
        dispatcher.execute(connection, memoryview(write_request(key, version, 1, "d" * 32_000, body))[4:])
        assert seen[-1] == ("d" * 255, body)
        assert len(connection.client_id_bytes) < 2_000, "thousands of connections would keep them"
    for length in (-2, 2, 32767):
        with pytest.raises(WireError, match=f"a client id of {length} bytes"):
            dispatcher.execute(connection, memoryview(struct.pack(">hhihB", key, version, 1, length, 0)))


@pytest.mark.parametrize("broker_id", [1, 0x0001_0000, 0x7FFF_FFFF, -2 << 16])
def test_a_request_without_a_client_id_keeps_the_one_of_the_connection(broker_id: int) -> None:
    """The first bytes of ControlledShutdown's body, a broker id, are where other requests have the length of a client id."""
    world, seen = ThrottlingWorld(), list[tuple[int, str | None]]()

    def handle(_broker: object, request: RequestContext, body: ControlledShutdownRequest) -> ControlledShutdownResponse:
        seen.append((body.broker_id, request.client_id))
        return ControlledShutdownResponse()

    world.dispatcher._route(7, 0).handle = handle
    world.receive(write_request(7, 0, 1, None, struct.pack(">i", broker_id)))
    assert not world.channel.is_closed
    assert (seen, world.connection.client_id_bytes) == ([(broker_id, None)], b"")
