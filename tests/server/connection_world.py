"""A connection under test, with an executor, a channel and an owner that record the calls they get."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import StorageError
from ottla.base.ports import Part, Receiver
from ottla.handlers.context import ConnectionInfo
from ottla.server.connection import Connection
from ottla.server.execution.scheduler import LARGE_BYTES, PRODUCE
from ottla.server.memory.answer_memory import ConnectionLimits, Slot
from ottla.server.memory.receive_buffer import (
    SHARED_BYTES,
    ReceiveBuffers,
)

LIMITS = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=100_000)


class Recorder:
    """An executor that answers each frame with the frame's own bytes. For a frame that begins with `later` it only reserves a slot."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.slots: list[Slot] = []
        self.batches = 0
        self.is_waking = False
        self.scheduler: Any = self
        self.is_crowded = False
        self.costly: set[bytes] = set()
        self.resumed: list[Connection] = []
        self.flushes: list[Callable[[], None]] = []

    def execute(self, connection: Connection, frame: memoryview) -> bool:
        data = bytes(frame)
        self.frames.append(data)
        if data.startswith(b"later"):
            self.slots.append(connection.answers.reserve())
        else:
            connection.answers.add([data])
        return False

    def is_likely_costly(self, connection: Connection, frame: memoryview, at: int, size: int) -> bool:
        is_quick = size > SHARED_BYTES and frame[at : at + 2] == PRODUCE.to_bytes(2)
        is_named = any(frame[at : at + len(data)] == data for data in self.costly)
        return is_named or (size > LARGE_BYTES and not is_quick)

    def resume_later(self, connection: Connection) -> None:
        self.resumed.append(connection)

    def owes(self, connection: Connection, frame: memoryview) -> bool:
        connection.is_new = False
        return False

    def is_throttled(self, connection: Connection) -> bool:
        return False

    def note_work(self) -> None:
        """Time does not matter here."""

    def begin_batch(self) -> None:
        self.batches += 1

    def end_batch(self) -> None:
        self.batches -= 1

    def flush_later(self, flush: Callable[[], None]) -> bool:
        if self.is_waking:
            self.flushes.append(flush)
        return self.is_waking


class FakeChannel:
    """Records the sent bytes. With `queued_bytes` above 0 it acts as a peer that does not read."""

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


class RecordingOwner:
    """Records how its connections end."""

    def __init__(self) -> None:
        self.ended: list[object] = []

    def on_closed(self, connection: Connection) -> None:
        self.ended.append("closed")

    def on_storage_error(self, error: StorageError) -> None:
        self.ended.append(error)

    def on_broken_invariant(self, error: AssertionError) -> None:
        self.ended.append(error)


class World(RecordingOwner):
    """One connection and its owner."""

    def __init__(self, limits: ConnectionLimits = LIMITS, buffers: ReceiveBuffers | None = None) -> None:
        super().__init__()
        self.executor, self.channel = Recorder(), FakeChannel()
        info = ConnectionInfo(identity="test:1", host="test", listener="PLAINTEXT")
        self.connection = Connection(self.executor, buffers or ReceiveBuffers(), info, limits, self.channel, self)
        self.channel.open(self.connection)

    def feed(self, data: bytes) -> bytes:
        """Passes the bytes to the connection as the event loop would: as many as fit into its buffer each time, while reading is not
        paused. Returns the rest."""
        while data and self.channel.is_reading and not self.channel.is_closed:
            room = self.connection.buffer()
            count = min(len(room), len(data))
            assert count > 0 or not self.channel.is_reading or self.channel.is_closed, "a buffer without room"
            if not count:
                break
            room[:count] = data[:count]
            data = data[count:]
            self.connection.received(count)
        return data


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def shares(bytes_max: int, count: int) -> tuple[ReceiveBuffers, list[World]]:
    buffers = ReceiveBuffers(bytes_max)
    limits = ConnectionLimits(frame_bytes_max=4 << 20, in_flight_max=8, queued_bytes_max=1 << 30)
    return buffers, [World(limits, buffers) for _ in range(count)]


def feed_all(pairs: list[tuple[World, bytes]]) -> None:
    """Passes data to several connections in turn, a piece to each that reads. Bytes of a connection that stops reading are dropped."""
    left = dict(enumerate(data for _, data in pairs))
    progress = True
    while progress:
        progress = False
        for number, (world, _) in enumerate(pairs):
            if left[number] and world.channel.is_reading:
                room = world.connection.buffer()
                count = min(len(room), len(left[number]), 30_000)
                if not count:
                    continue
                room[:count] = left[number][:count]
                left[number] = left[number][count:]
                world.connection.received(count)
                progress = True
