"""An unreliable network: connections deliver frames in order, but late, and may be reset at any moment. Only frames of the same connection
keep their order. A client sends each request on a new connection, and sometimes twice. An old request may therefore arrive during a later
transaction, and a copy after the original. Bytes that were sent before a connection was closed still arrive, unless the connection was
reset. Brokers use the same network with permanent connections.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.base.ports import REFUSED, Channel, Part, Receiver, Slice
from ottla.base.types import TopicPartition
from ottla.client.core.frames import FrameReader
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header, write_request
from tests.fakes.timers import ManualTimers
from tests.sim.machine import LifeTimers

LOST = 0.04
DOUBLED = 0.04
LATE = 0.06
LATE_MS = (200, 9_000)
SLOW = 0.1
SLOW_ANSWERS = 0.3
"""Answers from one broker to another: late often enough for what they say to be out of date."""
SLOW_MS = (12, 200)
USUAL_MS = (1, 12)
CLIENT_HOST = "10.0.0.1"
CLIENT_ID = "sim"


class Call(NamedTuple):
    """One request to the leader of the partition `place`; `body` makes a new request for each copy. `patience_ms` is the timeout; 0 means
    the timeout of the process.
    """

    handler: Any
    version: int
    body: Callable[[], Any]
    place: TopicPartition
    patience_ms: int = 0


class Wire:
    """One end of a connection (`ports.Channel`). `life` is the life of the process that has it; None for a client."""

    def __init__(self, network: SimNetwork, peer_host: str, life: LifeTimers | None) -> None:
        self._network = network
        self._life = life
        self._receiver: Receiver | None = None
        self._inbox: deque[bytes] = deque()
        self._is_reading = False
        self._is_closed = False
        self._last_arrival_ms = 0
        self.is_accepted = False
        self.peer: Wire
        self.peer_host = peer_host
        self.peer_port = 1
        self.queued_bytes = self.bytes_sent = 0

    def unsent_bytes(self) -> int:
        return self.queued_bytes

    @property
    def is_open(self) -> bool:
        return not self._is_closed and not (self._life is not None and self._life.is_over)

    @property
    def is_clients(self) -> bool:
        return self._life is None

    def local_host(self) -> str:
        return self.peer.peer_host

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.resume_reading()

    def send(self, parts: Sequence[Part]) -> None:
        if not self.is_open:
            return
        data = b"".join(part.read_piece(0, len(part)) if isinstance(part, Slice) else bytes(part) for part in parts)
        self.bytes_sent += len(data)
        if self._network.happens(LOST):
            self._at_arrival(self.reset)
        else:
            self._at_arrival(lambda: self.peer.arrive(data))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._network.timers.call_soon(self._read)

    def close(self) -> None:
        if not self._is_closed:
            self._at_arrival(self.peer.end)
            self.end()

    def reset(self) -> None:
        """Closes both ends; frames in flight are lost."""
        self.peer.end()
        self.end()

    def end(self) -> None:
        is_open, self._is_closed = self.is_open, True
        if is_open and self._receiver is not None:
            self._receiver.closed()

    def arrive(self, data: bytes) -> None:
        if self.is_open:
            self._inbox.append(data)
            self._read()

    def _read(self) -> None:
        while self._inbox and self._is_reading and self.is_open:
            assert self._receiver is not None
            data = self._inbox.popleft()
            room = self._receiver.buffer()
            if not room:
                self._inbox.appendleft(data)
                return
            count = min(len(room), len(data))
            room[:count] = data[:count]
            if count < len(data):
                self._inbox.appendleft(data[count:])
            self._receiver.received(count)

    def _at_arrival(self, function: Callable[[], None]) -> None:
        """Runs a function when it arrives, after everything that was sent before."""
        now_ms = self._network.timers.clock.monotonic_ms()
        slow = SLOW_ANSWERS if self.is_accepted and not self.peer.is_clients else SLOW
        self._last_arrival_ms = max(self._last_arrival_ms, now_ms + self._network.delay_ms(slow))
        self._network.timers.call_later(self._last_arrival_ms - now_ms, function)


class Answers:
    """The client's end of a connection (`ports.Receiver`): passes each answer to the function that waits for it."""

    def __init__(self) -> None:
        self._frames = FrameReader()
        self.waiting: dict[int, tuple[type, int, Callable[[Any], None]]] = {}
        self.is_closed = False

    def buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def received(self, count: int) -> None:
        self._frames.buffer_updated(count)
        while (frame := self._frames.next_frame()) is not None:
            correlation_id = int.from_bytes(frame[:4], "big")
            response_class, version, answered = self.waiting.pop(correlation_id)
            _, start = read_response_header(response_class.API_KEY, version, frame)  # type: ignore[attr-defined]
            answered(decoder(response_class, version)(frame, start)[0])

    def drained(self) -> None:
        pass

    def closed(self) -> None:
        self.is_closed = True


class Host:
    """`ports.Network` of one life of a broker."""

    def __init__(self, network: SimNetwork, name: str, life: LifeTimers) -> None:
        self._network = network
        self._name = name
        self._life = life
        self.port = 0

    def listen(self, host: str, port: int, backlog: int) -> Host:
        self.port = port
        return self

    def accept(self, connected: Callable[[Channel], None]) -> None:
        self._network.listening[self._name] = (self._life, connected)

    def close(self) -> None:
        self._network.listening.pop(self._name, None)

    def connect(self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None]) -> None:
        network, life = self._network, self._life

        def arrive() -> None:
            wire = network.join(host, self._name, life)
            life.call_later(network.delay_ms(), (lambda: failed(REFUSED)) if wire is None else (lambda: connected(wire)))

        network.timers.call_later(network.delay_ms(), arrive)

    def host_name(self) -> str:
        return self._name


class SimNetwork:
    """All connections of a world."""

    def __init__(self, chance: random.Random, timers: ManualTimers) -> None:
        self._chance = chance
        self.timers = timers
        self.listening: dict[str, tuple[LifeTimers, Callable[[Channel], None]]] = {}
        self.is_kind = False
        """Heals: nothing is lost or late any more."""
        self._links = 0

    def join(self, host: str, peer_host: str, life: LifeTimers | None) -> Wire | None:
        """Opens a connection to a host and returns the caller's end; None if no process listens there."""
        listener = self.listening.get(host)
        if listener is None or listener[0].is_over:
            return None
        near, far = Wire(self, host, life), Wire(self, peer_host, listener[0])
        self._link(near, far)
        listener[1](far)
        return near

    def _link(self, near: Wire, far: Wire) -> None:
        """Makes two wires the ends of one connection, with a unique port."""
        near.peer, far.peer = far, near
        far.is_accepted = True
        self._links += 1
        far.peer_port = self._links

    def send(self, call: Call, host: str, answered: Callable[[Any], None]) -> None:
        """Sends a client's request on a new connection, or a copy on each of two connections."""
        for _ in range(2 if self.happens(DOUBLED) else 1):
            if not self.happens(LOST):
                self.timers.call_later(self.delay_ms(), lambda: self._arrive(call, host, answered))

    def caller(self, name: str) -> Caller:
        """Returns a client that keeps its connection."""
        return Caller(self, name)

    def delay_ms(self, slow: float = SLOW) -> int:
        return self._chance.randint(*(LATE_MS if self.happens(LATE) else SLOW_MS if self.happens(slow) else USUAL_MS))

    def happens(self, probability: float) -> bool:
        return not self.is_kind and self._chance.random() < probability

    def _arrive(self, call: Call, host: str, answered: Callable[[Any], None]) -> None:
        wire = self.join(host, CLIENT_HOST, None)
        if wire is None:
            return
        answers = Answers()

        def finish(response: Any) -> None:
            wire.close()
            answered(response)

        frame = frame_of(call, 1, answers, finish)
        wire.open(answers)
        wire.peer.arrive(frame)


class Caller:
    """A client with one connection, which is opened again after it was closed. Its requests arrive in order."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self.name = name
        self._wire: Wire | None = None
        self._answers = Answers()
        self._number = 0

    def send(self, call: Call, host: str, answered: Callable[[Any], None]) -> None:
        wire = self._wire
        if wire is None or self._answers.is_closed or wire.peer_host != host or not wire.peer.is_open:
            self._answers = Answers()
            self._wire = wire = self._network.join(host, CLIENT_HOST, None)
            if wire is None:
                return
            wire.open(self._answers)
        self._number += 1
        wire.send([frame_of(call, self._number, self._answers, answered)])

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def reset(self) -> None:
        """Resets the connection; requests and answers in flight are lost."""
        if self._wire is not None:
            self._wire.reset()
            self._wire = None


def frame_of(call: Call, correlation_id: int, answers: Answers, answered: Callable[[Any], None]) -> bytes:
    """Returns the bytes of a request; its answer is passed to `answered`."""
    body = call.body()
    key = body.API_KEY
    answers.waiting[correlation_id] = (load(key)[1], call.version, answered)
    return write_request(key, call.version, correlation_id, CLIENT_ID, encoder(type(body), call.version)(body))
