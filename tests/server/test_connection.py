"""Connections: frames are found however the bytes are split, answers are sent in the order of the requests, and the limits hold."""

from __future__ import annotations

import struct

import pytest

from ottla.base.errors import StorageError
from ottla.server.connection import Connection
from ottla.server.execution.scheduler import LARGE_BYTES, PRODUCE
from ottla.server.memory.answer_memory import ConnectionLimits, Slot
from ottla.server.memory.receive_buffer import (
    POOLED_BYTES,
    SHARED_BYTES,
    LargeFrame,
    ReceiveBuffers,
)
from tests.server.connection_world import LIMITS, FakeChannel, World, feed_all, frame, shares

SMALL = [b"0123456789" + bytes([65 + i]) * i for i in range(20)]


@pytest.mark.parametrize("step", [1, 3, 7, 64, 10_000])
def test_frames_are_cut_out_of_any_split(step: int) -> None:
    world = World()
    data = b"".join(map(frame, SMALL))
    for at in range(0, len(data), step):
        world.feed(data[at : at + step])
    assert world.executor.frames == SMALL
    assert world.channel.sent == b"".join(SMALL)
    assert world.executor.batches == 0


AROUND_THE_BUFFERS = [SHARED_BYTES - 5, SHARED_BYTES - 4, SHARED_BYTES - 3, SHARED_BYTES, POOLED_BYTES, POOLED_BYTES + 1, 3 << 20]


@pytest.mark.parametrize("size", AROUND_THE_BUFFERS)
def test_a_large_frame_between_small_ones(size: int) -> None:
    world = World(ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30))
    large = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    world.feed(frame(SMALL[1]) + frame(large) + frame(SMALL[2]))
    assert world.executor.frames == [SMALL[1], large, SMALL[2]]


def test_answers_keep_the_order_of_the_requests() -> None:
    world = World()
    world.feed(frame(b"first-----") + frame(b"later-----") + frame(b"third-----") + frame(b"later-four"))
    assert len(world.executor.frames) == 4, "work does not wait for the answers before it"
    assert world.channel.sent == b"first-----"
    world.connection.fill(world.executor.slots[1], [b"FOUR"])
    assert world.channel.sent == b"first-----"
    world.connection.fill(world.executor.slots[0], [b"TWO"])
    assert world.channel.sent == b"first-----TWOthird-----FOUR"
    assert world.connection.is_idle()


def test_answers_of_one_wake_leave_in_one_write() -> None:
    world = World()
    world.feed(frame(b"later-----") * 4)
    world.executor.is_waking = True
    *slots, last = world.executor.slots
    for number, slot in enumerate(slots):
        world.connection.fill(slot, [b"%d" % number])
    assert world.channel.sent == b"", "another answer may follow in this round"
    for flush in world.executor.flushes:
        flush()
    assert (world.channel.sent, world.channel.writes) == (b"012", 1)
    world.connection.fill(last, [b"3"])
    assert (world.channel.sent, world.channel.writes) == (b"0123", 2), "no request waits, so nothing can follow"


def test_an_answer_that_is_not_wanted_leaves_no_gap() -> None:
    world = World()
    world.feed(frame(b"later-----") + frame(b"second----"))
    world.connection.fill(world.executor.slots[0], [])
    assert world.channel.sent == b"second----"


@pytest.mark.parametrize("size", [-1, 0, 1, 3, 9, 2**31 - 1, (4 << 20) + 1])
def test_f1_f2_a_size_that_no_request_has_closes(size: int, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.feed(struct.pack(">i", size) + b"x" * 16)
    assert world.ended == ["closed"] and "bytes is outside" in caplog.text
    assert world.executor.batches == 0, "the batch is ended even when it fails"


def test_f4_an_announced_frame_costs_only_what_was_received() -> None:
    buffers = ReceiveBuffers()
    large = LargeFrame(buffers, 100 << 20, memoryview(b"x" * 100), FakeChannel(), is_served=False)
    assert len(large.buffer) <= 1 << 15
    for _ in range(10):
        room = large.free_space()
        large.filled += len(room)
        assert len(large.buffer) <= 4 * large.filled + (1 << 15)


def test_requests_in_flight_are_bounded_and_reading_goes_on_later() -> None:
    world = World()
    world.feed(b"".join(frame(b"later-%04d" % i) for i in range(20)))
    assert len(world.executor.frames) == LIMITS.in_flight_max
    assert not world.channel.is_reading
    done = 0
    while done < len(world.executor.slots):
        world.connection.fill(world.executor.slots[done], [b"%d." % done])
        done += 1
    assert world.channel.is_reading
    assert len(world.executor.frames) == 20
    assert world.channel.sent == b"".join(b"%d." % i for i in range(20))


def test_where_a_heavy_request_was_executed_light_ones_go_first() -> None:
    large, light = World(), World(LIMITS)
    for world in (large, light):
        world.executor.is_crowded = True
    body = b"large-----" + b"z" * LARGE_BYTES
    large.feed(frame(SMALL[1]) + frame(body) + frame(SMALL[2]))
    light.feed(frame(SMALL[1]) + frame(SMALL[2]))
    assert light.executor.frames == [SMALL[1], SMALL[2]]
    assert large.executor.frames == [SMALL[1]] and not large.channel.is_reading
    large.executor.is_crowded = False
    (waiting,) = large.executor.resumed
    waiting.resume()
    assert large.executor.frames == [SMALL[1], body, SMALL[2]] and large.channel.is_reading


@pytest.mark.parametrize(("key", "is_executed"), [(PRODUCE, True), (1, False)])
def test_a_large_frame_waits_too_unless_it_brings_records(key: int, is_executed: bool) -> None:
    buffers = ReceiveBuffers()
    world = World(ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30), buffers)
    world.executor.is_crowded = True
    body = struct.pack(">h", key) + b"z" * SHARED_BYTES
    world.feed(frame(body))
    assert world.executor.frames == ([body] if is_executed else [])
    world.executor.is_crowded = False
    for waiting in world.executor.resumed:
        waiting.resume()
    world.feed(frame(SMALL[1]))
    assert world.executor.frames == [body, SMALL[1]] and buffers.bytes_lent == 0


def test_requests_of_a_costly_kind_wait_where_the_turn_is_crowded() -> None:
    world = World()
    world.executor.costly.add(SMALL[1])
    world.feed(frame(SMALL[1]))
    assert world.executor.frames == [SMALL[1]], "this turn has room"
    world.executor.is_crowded = True
    world.feed(frame(SMALL[0]) + frame(SMALL[1]))
    assert world.executor.frames == [SMALL[1], SMALL[0]] and world.executor.resumed == [world.connection]


def test_a_peer_that_has_not_taken_its_answers_does_not_go_on_in_its_turn() -> None:
    """Formerly the scheduler resumed connections whose clients never read: 300 of them had ten answers each made while all other clients
    waited."""
    world = World()
    world.executor.costly.add(SMALL[1])
    world.executor.is_crowded = True
    world.feed(frame(SMALL[1]))
    world.channel.queued_bytes = 1
    world.executor.is_crowded = False
    world.connection.resume()
    assert world.executor.frames == []
    world.channel.queued_bytes = 0
    world.connection.drained()
    assert world.executor.frames == [SMALL[1]] and world.channel.is_reading


def test_f7_a_peer_that_does_not_read_its_answers_stops_being_read() -> None:
    world = World()
    world.channel.queued_bytes = LIMITS.queued_bytes_max
    world.feed(b"".join(map(frame, SMALL)))
    assert world.executor.frames == [] and not world.channel.is_reading
    world.channel.queued_bytes = 0
    world.connection.drained()
    assert world.executor.frames == SMALL and world.channel.is_reading


def test_i46_what_comes_behind_the_request_that_closes_is_not_kept() -> None:
    """A long request fails in its first step. Formerly the bytes that were received behind it were never removed from the account."""
    buffers, (world,) = shares(1 << 20, 1)

    def fail_in_a_turn(connection: Connection, _frame: memoryview) -> bool:
        connection.block(Slot(None, 0))
        connection.channel.close()
        return True

    world.executor.execute = fail_in_a_turn  # type: ignore[assignment]
    world.feed(frame(b"turns-----") + frame(b"z" * 50_000)[:30_000])
    assert world.ended == ["closed"] and buffers.bytes_lent == 0


def test_nothing_is_executed_after_the_flush_that_closes() -> None:
    buffers = ReceiveBuffers()
    world = World(ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=10_000), buffers)
    world.channel.send = lambda _parts: world.channel.close()  # type: ignore[method-assign]
    world.feed(frame(b"a" * 10_000) + frame(b"b" * 10_000) + frame(b"c" * 100_000)[:20_000])
    assert [data[:1] for data in world.executor.frames] == [b"a"]
    assert world.ended == ["closed"] and buffers.bytes_lent == 0


def test_large_requests_in_flight_are_bounded_too() -> None:
    world = World(ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=3, queued_bytes_max=1 << 30))
    feed_all([(world, b"".join(frame(b"later-%d" % number + b"z" * 100_000) for number in range(6)))])
    assert len(world.executor.frames) == 3 and not world.channel.is_reading


def test_what_waits_is_given_up_when_the_peer_goes() -> None:
    world = World()
    world.feed(frame(b"later-----"))
    given_up: list[bool] = []
    world.executor.slots[0].abandon = lambda: given_up.append(True)
    world.channel.close()
    assert given_up == [True]


def test_functions_registered_for_the_close_are_called_once() -> None:
    world = World()
    notified: list[object] = []
    info = world.connection.info
    info.call_when_closed("kept", notified.append)
    info.call_when_closed("forgotten", notified.append)
    info.forget_closing("forgotten")
    world.channel.close()
    info.closed()
    assert notified == ["kept"]


def failing(error: Exception) -> World:
    world = World()

    def execute(_connection: Connection, _frame: memoryview) -> None:
        raise error

    world.executor.execute = execute  # type: ignore[method-assign]
    world.feed(frame(b"0123456789"))
    return world


def test_a_failed_request_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    assert failing(ValueError("oops")).ended == ["closed"]
    assert "a request failed" in caplog.text


def test_a_failed_read_is_passed_on_and_closes_the_connection() -> None:
    error = StorageError("cannot read")
    assert failing(error).ended == [error, "closed"]


def test_a_broken_invariant_is_passed_on() -> None:
    error = AssertionError("broken")
    assert failing(error).ended == [error]


def test_what_is_under_way_finishes_and_nothing_else_begins() -> None:
    world = World()
    world.feed(b"".join(frame(b"later-%04d" % number) for number in range(LIMITS.in_flight_max + 2)))
    idle: list[Connection] = []
    world.connection.finish(idle.append)
    assert not idle and not world.channel.is_reading
    for slot in world.executor.slots[:-1]:
        world.connection.fill(slot, [b"x"])
    world.channel.queued_bytes = 1
    world.connection.fill(world.executor.slots[-1], [b"x"])
    assert not idle, "an answer has not been taken yet"
    world.channel.queued_bytes = 0
    world.connection.drained()
    assert idle == [world.connection] and len(world.executor.frames) == LIMITS.in_flight_max


def test_a_connection_that_closes_is_finished() -> None:
    world = World()
    world.feed(frame(b"later-----"))
    idle: list[Connection] = []
    world.connection.finish(idle.append)
    world.channel.close()
    assert idle == [world.connection]
