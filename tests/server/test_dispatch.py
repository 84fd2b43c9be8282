"""Routes: which requests are executed, and which close their connection."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.errors import WireError
from ottla.requests.context import RequestContext
from ottla.server.dispatch import (
    CHEAP_NS,
    COSTLY_NS,
    HEAVY_NS,
    NOTABLE_NS,
    TURN_LEAST_NS,
    TURN_NS,
    Dispatcher,
    for_extended_connections,
    recent_cost,
)
from ottla.server.route import Route
from ottla.wire.framing import header_reader, write_request
from tests.fakes.timers import ManualTimers


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


def test_a_kind_is_costly_after_some_dear_requests_and_a_few_cheap_ones_end_it() -> None:
    cost_ns = 0
    for count in range(1, 10):
        cost_ns = recent_cost(cost_ns, 10 * HEAVY_NS, 4)
        assert (cost_ns > COSTLY_NS) == (count > 4), "one alone may be the machine's doing"
    for _ in range(3):
        cost_ns = recent_cost(cost_ns, CHEAP_NS // 10, 4)
    assert cost_ns < COSTLY_NS
    for _ in range(10):
        cost_ns = recent_cost(cost_ns, CHEAP_NS // 10, 4)
    assert cost_ns == 0


def test_of_connections_that_wait_cheap_ones_go_on_first_and_dear_ones_in_the_end() -> None:
    timers = ManualTimers()
    broker: Any = SimpleNamespace(clock=timers.clock, timers=timers)
    dispatcher = Dispatcher(broker, Any)  # type: ignore[arg-type]
    resumed: list[int] = []

    def wait(name: int, cost_ns: int) -> None:
        connection: Any = SimpleNamespace(cost_ns=cost_ns, resume=lambda: resumed.append(name))
        dispatcher.resume_later(connection)

    wait(1, HEAVY_NS)
    for name in range(2, 6):
        wait(name, 0)
    timers.run_due()
    assert resumed == [2, 3, 4, 5, 1]
    resumed.clear()
    wait(1, NOTABLE_NS)
    for name in range(2, 200):
        wait(name, 0)
    timers.run_due()
    assert 90 < resumed.index(1) < 110, "it is not passed over for ever"


def test_many_connections_of_cheap_requests_share_one_turn_of_the_loop() -> None:
    """Each had ten milliseconds, whatever the others had taken, so fifty that sent a hundred requests each held up everybody."""
    timers = ManualTimers()
    now_ns, cost_ns = 0, 20_000

    def handle(_broker: object, _request: RequestContext, _body: bytes) -> None:
        nonlocal now_ns
        now_ns += cost_ns

    broker: Any = SimpleNamespace(clock=SimpleNamespace(nanoseconds=lambda: now_ns, monotonic_ms=lambda: 0), timers=timers)
    dispatcher = Dispatcher(broker, SimpleNamespace(run=lambda: None, is_batching=False))  # type: ignore[arg-type]
    dispatcher.routes[18 << 16] = cast(
        Route,
        SimpleNamespace(
            version=0, has_request_tags=False, plain_bytes_max=1 << 20, may_be_long=False, cost_ns=0, nanoseconds=0,
            immediate=[0] * 64, handle=handle, decode=lambda frame, at: (b"", len(frame)),
        ),
    )  # fmt: skip
    frame = memoryview(write_request(18, 0, 1, "flood", b""))[4:]

    def turn(connections: int) -> int:
        """How long all of them take, of which each has sent a hundred requests."""
        began_ns = now_ns
        for _ in range(connections):
            connection: Any = SimpleNamespace(
                read_header=header_reader(2), client_id_bytes=b"", header_bytes=0, contexts={}, client_id=None, info=None,
                cost_ns=0, heavy_requests=0,
            )  # fmt: skip
            dispatcher.before_batch()
            any(dispatcher.execute(connection, frame) for _ in range(100))
            dispatcher.after_batch()
        timers.run_due()
        return now_ns - began_ns

    assert turn(1) == 100 * cost_ns
    assert turn(50) <= TURN_NS + 50 * (TURN_LEAST_NS + 2 * cost_ns)
    assert turn(1) == 100 * cost_ns, "the next turn is another one"


@pytest.mark.parametrize("has_tags", [False, True])
def test_client_ids_that_change_within_a_connection(has_tags: bool) -> None:
    """Each request has its own, though the last one is where the next is looked for; the longest may be longer than all of the next."""
    timers = ManualTimers()
    broker: Any = SimpleNamespace(clock=timers.clock, timers=timers)
    dispatcher = Dispatcher(broker, SimpleNamespace())  # type: ignore[arg-type]
    seen: list[tuple[str | None, bytes]] = []

    def handle(_broker: object, request: RequestContext, body: bytes) -> None:
        seen.append((request.client_id, body))

    key, version = (18, 3) if has_tags else (18, 0)
    dispatcher.routes[key << 16 | version] = cast(
        Route,
        SimpleNamespace(
            version=version, has_request_tags=has_tags, plain_bytes_max=1 << 20, may_be_long=False, cost_ns=0, nanoseconds=0,
            immediate=[0] * 64, handle=handle, decode=lambda frame, at: (bytes(frame[at:]), len(frame)),
        ),
    )  # fmt: skip
    connection: Any = SimpleNamespace(
        read_header=header_reader(2), client_id_bytes=b"", header_bytes=0, contexts={}, client_id=None, info=None,
        cost_ns=0, heavy_requests=0,
    )
    wanted = [("a" * 200, b"1"), (None, b""), ("", b"2"), ("b", b""), ("ab", b"3"), ("a" * 200, b"4"), (None, b"5"), (None, b"6")]
    wanted += [("c" * 255, b"7"), ("é" * 255, b"8"), ("c" * 255, b"9")]
    dispatcher.before_batch()
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
