"""Sends the recorded requests of real clients to a new broker and compares the answers with the recorded ones. Random values of a broker or
a client (`DRAWN`) may differ: the test takes the new value from the first answer that has it, and puts it into later requests.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.batch_header import iter_batches
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_request_header, read_response_header, write_request
from ottla.wire.schema import Struct
from tests.golden.captures import CLIENTS, Frame, conversation, ready_broker
from tests.golden.record import frame_from

DRAWN = {"client_instance_id", "cluster_id", "leader", "member_id", "session_id", "subscription_id", "topic_id"}
"""Fields with drawn values; also the elements that a response names by them."""
MEASURED = {"throttle_time_ms"}
CRC, TIMES = slice(17, 21), slice(27, 43)
"""Their places in the header of a batch."""
SECONDS = 60


@dataclass
class Talk:
    """The replay of one recording."""

    port: int
    learned: dict[Any, Any] = field(default_factory=dict)
    connections: dict[int, socket.socket] = field(default_factory=dict)

    def send(self, frame: Frame) -> None:
        connection = self.connections.get(frame.connection)
        if connection is None:
            connection = self.connections[frame.connection] = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        key, version, correlation_id, client_id, at = read_request_header(frame.data[4:])
        body = self.now(decoder(load(key)[0], version)(memoryview(frame.data)[4:], at)[0])
        connection.sendall(write_request(key, version, correlation_id, client_id, encoder(type(body), version)(body)))

    def now(self, value: Any) -> Any:
        """Returns the value with the recorded random values replaced by the new ones; messages are changed in place."""
        if isinstance(value, Struct):
            for name, old in ((each.name, getattr(value, each.name)) for each in value.__fields__):
                new = self.now(old)
                if new != old:
                    setattr(value, name, new)
            return value
        if isinstance(value, list):
            return [self.now(inner) for inner in value]
        return self.learned.get(value, value) if isinstance(value, str | bytes | int) else value

    def differences(self, frame: Frame) -> Iterator[str]:
        """Takes the answer, and yields each field that differs from the captured answer."""
        then, now = (self.decoded(frame, data) for data in (frame.data, frame_from(self.connections[frame.connection])))
        return self.compare(then, now, f"frame {frame.number}: {type(then).__name__} {frame.version}")

    @staticmethod
    def decoded(frame: Frame, data: bytes) -> Any:
        _, at = read_response_header(frame.key, frame.version, data, 4)
        return decoder(load(frame.key)[1], frame.version)(memoryview(data), at)[0]

    def compare(self, then: Any, now: Any, where: str) -> Iterator[str]:
        if isinstance(then, Struct):
            for name in (each.name for each in then.__fields__ if each.name not in MEASURED):
                old, new = getattr(then, name), getattr(now, name)
                if name in DRAWN and old and new:
                    new = old if self.learned.setdefault(old, new) == new else new
                yield from self.compare(old, new, f"{where}.{name}")
        elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
            for number, (old, new) in enumerate(zip(then, now, strict=True)):
                yield from self.compare(old, new, f"{where}[{number}]")
        elif isinstance(then, memoryview) and isinstance(now, memoryview):
            if batches(then) != batches(now):
                yield f"{where}: {then.hex()}, now {now.hex()}"
        elif then != now:
            yield f"{where}: {then!r}, now {now!r}"


def batches(records: memoryview) -> list[bytes]:
    """Returns the batches. Times and CRC of markers are removed, because the broker makes them."""
    found = []
    for position, header in iter_batches(records):
        batch = bytearray(records[position : position + header.size_bytes])
        if header.is_control:
            batch[CRC], batch[TIMES] = bytes(4), bytes(16)
        found.append(bytes(batch))
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_the_broker_answers_as_it_did(client: str, tmp_path: Path) -> None:
    broker = ready_broker(tmp_path)
    talk = Talk(broker.port)
    differences: list[str] = []
    try:
        for frame in conversation(client):
            if frame.is_request:
                talk.send(frame)
            else:
                differences += talk.differences(frame)
    finally:
        for connection in talk.connections.values():
            connection.close()
        broker.stop()
    assert differences == []
