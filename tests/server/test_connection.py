"""Connections: frames are cut out of any split of the bytes, answers leave in the order of the requests, and bounds hold."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest

from ottla.base.errors import StorageError
from ottla.base.ports import Part, Receiver
from ottla.requests.context import ConnectionInfo
from ottla.server.connection import HEAVY_REQUESTS, LIGHT_BYTES_MAX, PRODUCE, Connection
from ottla.server.held_memory import ConnectionLimits, HeldMemory, Slot
from ottla.server.receive_buffer import (
    POOLED_BUFFERS_MAX,
    POOLED_BYTES,
    RIPE_TICKS,
    SHARED_BYTES,
    STILL_TICKS_MAX,
    LargeFrame,
    ReceiveBuffers,
)

LIMITS = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=100_000)


class Recorder:
    """An executor that answers each frame with its own bytes, or keeps a place when the frame begins with `later`."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.slots: list[Slot] = []
        self.batches = 0
        self.is_waking = False
        self.is_crowded = False
        self.costly: set[bytes] = set()
        self.resumed: list[Connection] = []
        self.flushes: list[Callable[[], None]] = []

    def execute(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        if data.startswith(b"later"):
            self.slots.append(connection.reserve())
        else:
            connection.answer([data])

    def is_costly(self, connection: Connection, frame: memoryview, at: int, size: int) -> bool:
        is_quick = size > SHARED_BYTES and frame[at : at + 2] == PRODUCE.to_bytes(2)
        is_named = any(frame[at : at + len(data)] == data for data in self.costly)
        return connection.heavy_requests >= HEAVY_REQUESTS or is_named or (size > LIGHT_BYTES_MAX and not is_quick)

    def resume_later(self, connection: Connection) -> None:
        self.resumed.append(connection)

    def before_batch(self) -> None:
        self.batches += 1

    def after_batch(self) -> None:
        self.batches -= 1

    def flush_later(self, flush: Callable[[], None]) -> bool:
        if self.is_waking:
            self.flushes.append(flush)
        return self.is_waking


class FakeChannel:
    """Keeps what is sent; `queued_bytes` plays a peer that does not read."""

    peer_host, peer_port = "test", 1

    def __init__(self) -> None:
        self.sent = b""
        self.writes = 0
        self.queued_bytes = self.bytes_sent = 0
        self.is_reading = False
        self.is_closed = False

    def unsent_bytes(self) -> int:
        return self.queued_bytes

    def local_host(self) -> str:
        return "here"

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.is_reading = True

    def send(self, parts: Sequence[Part]) -> None:
        self.writes += 1
        for part in parts:
            assert isinstance(part, bytes | bytearray)
            self.sent += part

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._receiver.closed()


class World:
    """One connection and its owner."""

    def __init__(self, limits: ConnectionLimits = LIMITS, buffers: ReceiveBuffers | None = None) -> None:
        self.executor, self.channel = Recorder(), FakeChannel()
        self.ended: list[object] = []
        info = ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")
        self.connection = Connection(self.executor, buffers or ReceiveBuffers(), info, limits, self.channel, self)
        self.channel.open(self.connection)

    def on_closed(self, connection: Connection) -> None:
        self.ended.append("closed")

    def on_storage_error(self, error: StorageError) -> None:
        self.ended.append(error)

    def on_broken_invariant(self, error: AssertionError) -> None:
        self.ended.append(error)

    def feed(self, data: bytes) -> None:
        """Gives the bytes as the loop would: as much as fits each time, while reading is not paused."""
        while data and self.channel.is_reading and not self.channel.is_closed:
            room = self.connection.buffer()
            count = min(len(room), len(data))
            assert count > 0, "a buffer without room"
            room[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


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
    world.feed(frame(b"later-----") * 3)
    world.executor.is_waking = True
    for number, slot in enumerate(world.executor.slots):
        world.connection.fill(slot, [b"%d" % number])
    assert world.channel.sent == b""
    for flush in world.executor.flushes:
        flush()
    assert (world.channel.sent, world.channel.writes) == (b"012", 1)


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
    large = LargeFrame(buffers, 100 << 20, memoryview(b"x" * 100))
    assert len(large.buffer) <= 1 << 15
    for _ in range(10):
        room = large.room()
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
    body = b"large-----" + b"z" * LIGHT_BYTES_MAX
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


def test_a_client_of_heavy_requests_waits_for_its_turn() -> None:
    world = World()
    world.connection.heavy_requests = HEAVY_REQUESTS
    world.executor.is_crowded = True
    world.feed(frame(SMALL[1]))
    assert world.executor.frames == [] and world.executor.resumed == [world.connection]


def test_requests_of_a_costly_kind_wait_where_the_turn_is_crowded() -> None:
    world = World()
    world.executor.costly.add(SMALL[1])
    world.feed(frame(SMALL[1]))
    assert world.executor.frames == [SMALL[1]], "this turn has room"
    world.executor.is_crowded = True
    world.feed(frame(SMALL[0]) + frame(SMALL[1]))
    assert world.executor.frames == [SMALL[1], SMALL[0]] and world.executor.resumed == [world.connection]


def test_a_peer_that_has_not_taken_its_answers_does_not_go_on_in_its_turn() -> None:
    """300 connections that never read had ten answers made each, while all others waited."""
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
    world.connection.unchoke()
    assert world.executor.frames == SMALL and world.channel.is_reading


def test_buffers_of_ordinary_large_frames_are_used_again() -> None:
    buffers = ReceiveBuffers()
    first = LargeFrame(buffers, 1 << 20, memoryview(b"x" * SHARED_BYTES))
    first.release()
    assert LargeFrame(buffers, 1 << 20, memoryview(b"y" * SHARED_BYTES)).buffer is first.buffer


def test_hundreds_of_frames_that_begin_at_once_do_not_get_a_pooled_buffer_each() -> None:
    """600 connections that sent 17 kB of a frame had 60 of them made in one turn of the loop: 56 ms."""
    buffers = ReceiveBuffers()
    frames = [LargeFrame(buffers, 1 << 20, memoryview(b"x" * 17_000)) for _ in range(600)]
    assert sum(len(frame.buffer) == POOLED_BYTES for frame in frames) <= POOLED_BUFFERS_MAX + 1
    assert len(frames[-1].buffer) < 1.1 * frames[-1].filled, "pages that may never be written"
    last = frames[-1]
    growths = 0
    while not last.is_whole():
        last.filled += len(last.room())
        growths += 1
    assert growths <= 4, "one that comes grows by large steps"


# Memory in all


def shares(bytes_max: int, count: int) -> tuple[ReceiveBuffers, list[World]]:
    buffers = ReceiveBuffers(bytes_max)
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30)
    return buffers, [World(limits, buffers) for _ in range(count)]


def feed_all(pairs: list[tuple[World, bytes]]) -> None:
    """In turns, a piece each, to those that read; what is left over was never read."""
    left = dict(enumerate(data for _, data in pairs))
    progress = True
    while progress:
        progress = False
        for number, (world, _) in enumerate(pairs):
            if left[number] and world.channel.is_reading:
                room = world.connection.buffer()
                count = min(len(room), len(left[number]), 30_000)
                room[:count] = left[number][:count]
                left[number] = left[number][count:]
                world.connection.received(count)
                progress = True


def test_i46_large_frames_share_one_bound_and_all_come_through() -> None:
    buffers, worlds = shares(3 << 20, 6)
    peak = 0
    lend = buffers.lend

    def watched(size: int) -> bytearray:
        nonlocal peak
        made = lend(size)
        peak = max(peak, buffers.bytes_lent)
        return made

    buffers.lend = watched  # type: ignore[method-assign]
    body = b"z" * (2 << 20)
    feed_all([(worlds[number], frame(body)) for number in range(2)])
    assert [len(world.executor.frames) for world in worlds[:2]] == [1, 1]
    assert buffers.bytes_lent == 0 and peak <= (3 << 20) + (2 << 20), "both the old and the new buffer are there while one grows"
    assert all(world.channel.is_reading for world in worlds)


def test_i46_a_frame_larger_than_the_bound_comes_when_it_is_alone() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    feed_all([(world, frame(b"z" * (3 << 20)))])
    assert len(world.executor.frames) == 1 and buffers.bytes_lent == 0


def test_i46_a_standstill_ends() -> None:
    buffers, worlds = shares(1 << 20, 4)
    feed_all([(world, frame(b"z" * (3 << 20))) for world in worlds])
    assert [world.executor.frames for world in worlds] == [[]] * 4 and not any(world.channel.is_reading for world in worlds)
    for _ in range(STILL_TICKS_MAX):
        buffers.relieve()
    assert not any(world.channel.is_closed for world in worlds), "they may only be slow"
    buffers.relieve()
    assert sum(world.channel.is_closed for world in worlds) == 1
    assert any(world.channel.is_reading for world in worlds), "others go on with what it had"


def test_i46_silent_peers_with_a_piece_of_a_frame_starve_no_other() -> None:
    buffers, worlds = shares(4 << 20, 201)
    *silent, honest = worlds
    for world in silent:
        world.feed(frame(b"z" * (3 << 20))[:70_000])
    assert buffers.bytes_lent <= 5 << 20, "a piece takes little more than its bytes, and a crowd is cut at the bound"
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(honest, frame(b"honest" * 100_000))])
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert sum(world.channel.is_closed for world in silent) > 0


def test_i46_the_slowest_frames_are_dropped_not_those_that_wait() -> None:
    buffers, (slow, quick, waiting) = shares(1 << 20, 3)
    slow.feed(frame(b"z" * (3 << 20))[:70_000])
    quick.feed(frame(b"z" * (3 << 20))[:300_000])
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(waiting, frame(b"w" * 700_000))])
    assert slow.channel.is_closed and not waiting.channel.is_closed
    assert len(waiting.executor.frames) == 1


def test_i46_pieces_of_small_frames_starve_no_large_one() -> None:
    buffers, worlds = shares(1 << 20, 21)
    *silent, honest = worlds
    buffers.holders = lambda: [world.connection for world in worlds]
    for world in silent:
        world.feed(frame(b"z" * 60_000)[:50_000])
    for _ in range(RIPE_TICKS):
        buffers.relieve()
    feed_all([(honest, frame(b"honest" * 20_000))])
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert 0 < sum(world.channel.is_closed for world in silent) < 15, "no more than there must be"


def test_i46_a_slow_line_is_not_dropped_for_those_who_only_drip() -> None:
    """What they sent at first was more in each tick than a slow line takes."""
    buffers, worlds = shares(1 << 20, 23)
    *dripping, honest = worlds
    buffers.holders = lambda: [world.connection for world in worlds]
    for world in dripping:
        world.feed(frame(b"z" * 60_000)[:48_000])
    data = frame(b"honest" * 20_000)
    for at in range(0, len(data), 4_000):
        honest.feed(data[at : at + 4_000])
        buffers.relieve()
        for world in dripping:
            if not world.channel.is_closed:
                world.feed(b"z")
    assert len(honest.executor.frames) == 1 and not honest.channel.is_closed
    assert sum(world.channel.is_closed for world in dripping) > 0


def test_i46_a_piece_of_a_small_frame_stays_as_old_as_it_is() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    data = frame(b"z" * 60_000)
    world.feed(data[:50_000])
    for at in range(50_000, 50_003):
        buffers.relieve()
        world.feed(data[at : at + 1])
    assert world.connection.held_since_tick == 0
    world.feed(data[50_003:] + data[:10])
    assert world.connection.held_since_tick == buffers.tick, "the next request began now"
    world.feed(data[10:])
    buffers.relieve()
    world.feed(data[:10])
    assert world.connection.held_since_tick == buffers.tick


def test_i46_a_large_frame_goes_on_when_small_ones_have_made_room() -> None:
    buffers, (holder, waiting) = shares(100_000, 2)
    holder.feed(frame(b"z" * 60_000)[:50_000])
    feed_all([(waiting, frame(b"w" * 200_000))])
    assert not waiting.channel.is_reading
    holder.feed(frame(b"z" * 60_000)[50_000:])
    buffers.relieve()
    assert waiting.channel.is_reading


def test_i46_pieces_of_small_frames_count() -> None:
    buffers, (world,) = shares(1 << 20, 1)
    world.feed(frame(b"z" * 50_000)[:30_000])
    assert buffers.bytes_lent == 30_000 == world.connection.held_bytes
    world.feed(frame(b"z" * 50_000)[30_000:])
    assert buffers.bytes_lent == 0 and len(world.executor.frames) == 1
    world.feed(frame(b"z" * 50_000)[:30_000])
    world.channel.close()
    assert buffers.bytes_lent == 0


def test_i46_answers_that_are_not_taken_count_together() -> None:
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30, held=HeldMemory(100_000))
    stuck, slow, small = (World(limits) for _ in range(3))
    for world, size in ((slow, 50_000), (stuck, 45_000), (small, 2_000)):
        world.channel.queued_bytes = size
        world.feed(frame(b"ask-------"))
    slow.channel.bytes_sent += 1_000
    assert limits.held.total_bytes == 97_000
    small.channel.queued_bytes = 12_000
    small.feed(frame(b"ask-------"))
    assert stuck.channel.is_closed, "its peer has taken nothing"
    assert not slow.channel.is_closed and not small.channel.is_closed
    assert limits.held.total_bytes == 62_000
    slow.channel.queued_bytes = 0
    slow.connection.drained()
    assert limits.held.total_bytes == 12_000


def test_i46_a_peer_that_goes_gives_its_room_back() -> None:
    buffers, (world,) = shares(4 << 20, 1)
    world.feed(frame(b"z" * (3 << 20))[: 1 << 20])
    assert buffers.bytes_lent > 0
    world.channel.close()
    assert buffers.bytes_lent == 0


def test_i46_answers_that_wait_for_another_count() -> None:
    world = World()
    world.feed(frame(b"later-----") + frame(b"a" * 60_000) + frame(b"b" * 60_000) + frame(b"third-----"))
    assert len(world.executor.frames) == 3 and not world.channel.is_reading
    world.connection.fill(world.executor.slots[0], [b"NOW"])
    assert world.channel.is_reading and world.channel.sent == b"NOW" + b"a" * 60_000 + b"b" * 60_000 + b"third-----"


def test_i46_requests_that_wait_count() -> None:
    world = World()
    slot = world.connection.reserve(LIMITS.queued_bytes_max)
    world.feed(frame(b"second----"))
    assert world.executor.frames == [] and not world.channel.is_reading
    world.connection.fill(slot, [b"FIRST"])
    assert world.channel.is_reading and world.channel.sent == b"FIRSTsecond----"


def test_i46_requests_that_wait_count_together() -> None:
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30, held=HeldMemory(100_000))
    small, large = World(limits), World(limits)
    small.connection.reserve(30_000)
    large.connection.reserve(71_000)
    small.feed(frame(b"later-----"))
    assert large.channel.is_closed and not small.channel.is_closed
    assert limits.held.total_bytes == 30_000


def test_i46_what_comes_behind_the_request_that_closes_is_not_kept() -> None:
    """A request that goes in turns fails in the first of them: what was received behind it counted for ever."""
    buffers, (world,) = shares(1 << 20, 1)

    def fail_in_a_turn(connection: Connection, _frame: memoryview) -> bool:
        connection.hold(0)
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
