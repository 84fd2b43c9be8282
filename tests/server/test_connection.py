"""Connections: frames are cut out of any split of the bytes, answers leave in the order of the requests, and bounds hold."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from ottla.base.errors import WireError
from ottla.handlers.context import ConnectionInfo
from ottla.server.connection import Connection, ConnectionLimits, Slot
from ottla.server.receive_buffer import POOLED_BYTES, SHARED_BYTES, LargeFrame, ReceiveBuffers

LIMITS = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=100_000)


class Recorder:
    """An executor that answers each frame with its own bytes, or keeps a place when the frame begins with `later`."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.slots: list[Slot] = []
        self.batches = 0

    def execute(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        if data.startswith(b"later"):
            self.slots.append(connection.reserve())
        else:
            connection.answer([data])

    def before_batch(self) -> None:
        self.batches += 1

    def after_batch(self) -> None:
        self.batches -= 1


class Sink:
    """A sender that keeps what it is given; `queued_bytes` plays a peer that does not read."""

    def __init__(self) -> None:
        self.sent = b""
        self.queued_bytes = 0

    def send(self, parts: list[bytes]) -> None:
        for part in parts:
            self.sent += bytes(part)


class FakeShell:
    def __init__(self) -> None:
        self.is_reading = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def guard(self, work: Callable[[], None]) -> None:
        work()


class World:
    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.executor, self.shell, self.sink = Recorder(), FakeShell(), Sink()
        info = ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")
        self.connection = Connection(self.executor, ReceiveBuffers(), info, limits, self.shell)
        self.connection.sender = self.sink  # type: ignore[assignment]

    def feed(self, data: bytes) -> None:
        """Gives the bytes as the loop would: as much as fits each time, while reading is not paused."""
        while data and self.shell.is_reading:
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
    assert world.sink.sent == b"".join(SMALL)
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
    assert world.sink.sent == b"first-----"
    world.connection.fill(world.executor.slots[1], [b"FOUR"])
    assert world.sink.sent == b"first-----"
    world.connection.fill(world.executor.slots[0], [b"TWO"])
    assert world.sink.sent == b"first-----TWOthird-----FOUR"
    assert world.connection.is_idle()


def test_an_answer_that_is_not_wanted_leaves_no_gap() -> None:
    world = World()
    world.feed(frame(b"later-----") + frame(b"second----"))
    world.connection.fill(world.executor.slots[0], [])
    assert world.sink.sent == b"second----"


@pytest.mark.parametrize("size", [-1, 0, 1, 3, 9, 2**31 - 1, (4 << 20) + 1])
def test_f1_f2_a_size_that_no_request_has_closes(size: int) -> None:
    world = World()
    with pytest.raises(WireError):
        world.feed(struct.pack(">i", size) + b"x" * 16)
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
    assert not world.shell.is_reading
    done = 0
    while done < len(world.executor.slots):
        world.connection.fill(world.executor.slots[done], [b"%d." % done])
        done += 1
    assert world.shell.is_reading
    assert len(world.executor.frames) == 20
    assert world.sink.sent == b"".join(b"%d." % i for i in range(20))


def test_f7_a_peer_that_does_not_read_its_answers_stops_being_read() -> None:
    world = World()
    world.sink.queued_bytes = LIMITS.queued_bytes_max
    world.feed(b"".join(map(frame, SMALL)))
    assert world.executor.frames == [] and not world.shell.is_reading
    world.sink.queued_bytes = 0
    world.connection.unchoke()
    assert world.executor.frames == SMALL and world.shell.is_reading


def test_buffers_of_ordinary_large_frames_are_used_again() -> None:
    buffers = ReceiveBuffers()
    first = LargeFrame(buffers, 1 << 20, memoryview(b"x" * SHARED_BYTES))
    first.release()
    assert LargeFrame(buffers, 1 << 20, memoryview(b"y" * SHARED_BYTES)).buffer is first.buffer
