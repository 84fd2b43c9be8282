"""The states of a connection: which transitions are allowed, and which state it has if it waits for several reasons."""

from __future__ import annotations

from itertools import product

import pytest

from ottla.server.connection import Connection
from ottla.server.connection_state import ALLOWED, BLOCKED, CLOSED, FINISHING, FULL, READING, THROTTLED, ConnectionState
from ottla.server.memory.answer_memory import Slot
from tests.server.connection_world import LIMITS, World, frame


def test_every_state_has_its_moves_and_the_last_one_has_none() -> None:
    assert set(ALLOWED) == set(ConnectionState)
    assert ALLOWED[CLOSED] == frozenset()
    assert all(CLOSED in ALLOWED[state] for state in ConnectionState if state is not CLOSED), "a client may disconnect at any time"


@pytest.mark.parametrize(("start", "end"), [(a, b) for a, b in product(ConnectionState, repeat=2) if b not in ALLOWED[a]])
def test_a_move_that_the_table_does_not_have_fails(start: ConnectionState, end: ConnectionState) -> None:
    connection = World().connection
    connection.state = start
    with pytest.raises(AssertionError, match=f"from {start.name} to {end.name}"):
        connection._move(end)
    assert connection.state is start


class Client:
    """A connection whose client may be throttled; requests that begin with "later" wait for their answers."""

    def __init__(self) -> None:
        self.world = World()
        self.connection = self.world.connection
        self.is_throttled = False
        self.world.executor.is_throttled = lambda _connection: self.is_throttled  # type: ignore[method-assign]

    def throttle(self) -> None:
        self.is_throttled = True
        self.connection.throttle()

    def end_throttle(self) -> None:
        self.is_throttled = False
        self.connection.end_throttle()

    def block(self) -> None:
        """Executes a request that blocks the connection; another request waits behind it."""

        def execute(connection: Connection, _frame: memoryview) -> bool:
            connection.block(Slot(None, 0))
            return False

        self.world.executor.execute = execute  # type: ignore[method-assign]
        self.world.feed(frame(b"block-----") + frame(b"behind----"))
        del self.world.executor.execute  # type: ignore[attr-defined]

    def executed(self) -> list[bytes]:
        return self.world.executor.frames


def test_a_request_that_blocks_is_followed_by_nothing_until_it_is_executed() -> None:
    client = Client()
    client.block()
    assert client.connection.state is BLOCKED and not client.world.channel.is_reading and client.executed() == []
    client.connection.release()
    assert client.connection.state is READING and client.world.channel.is_reading and client.executed() == [b"behind----"]


@pytest.mark.parametrize("is_released_first", [True, False])
def test_a_blocked_connection_that_is_throttled_waits_for_both(is_released_first: bool) -> None:
    client = Client()
    client.block()
    client.throttle()
    assert client.connection.state is BLOCKED
    first, second = (client.connection.release, client.end_throttle)[:: 1 if is_released_first else -1]
    first()
    assert client.connection.state is (THROTTLED if is_released_first else BLOCKED) and client.executed() == []
    second()
    assert client.connection.state is READING and client.executed() == [b"behind----"]


def test_a_request_may_throttle_its_client_before_it_blocks() -> None:
    client = Client()

    def execute(connection: Connection, _frame: memoryview) -> bool:
        client.throttle()
        connection.block(Slot(None, 0))
        return False

    client.world.executor.execute = execute  # type: ignore[method-assign]
    client.world.feed(frame(b"block-----"))
    assert client.connection.state is BLOCKED
    client.connection.release()
    assert client.connection.state is THROTTLED
    client.end_throttle()
    assert client.connection.state is READING and client.world.channel.is_reading


def test_a_full_connection_that_is_throttled_is_full_again_afterwards() -> None:
    client = Client()
    client.world.feed(b"".join(frame(b"later-%04d" % number) for number in range(LIMITS.in_flight_max + 1)))
    assert client.connection.state is FULL
    client.throttle()
    client.end_throttle()
    assert client.connection.state is FULL and not client.world.channel.is_reading
    client.connection.fill(client.world.executor.slots[0], [b"first"])
    assert client.connection.state is READING and len(client.executed()) == LIMITS.in_flight_max + 1


def test_a_connection_that_is_resumed_waits_for_a_peer_that_does_not_read() -> None:
    client = Client()
    client.block()
    client.world.channel.queued_bytes = 1
    client.connection.resume()
    assert client.connection.state is FULL
    client.world.channel.queued_bytes = 0
    client.connection.drained()
    assert client.connection.state is READING and client.executed() == [b"behind----"]


def test_nothing_leaves_a_connection_that_finishes() -> None:
    client = Client()
    client.block()
    idle: list[Connection] = []
    client.connection.finish(idle.append)
    client.throttle()
    client.end_throttle()
    client.connection.release()
    client.connection.resume()
    assert client.connection.state is FINISHING and client.executed() == []
    client.world.channel.close()
    assert client.connection.state is CLOSED and idle == [client.connection]
