"""Measures the lower bound of a broker's costs: one Python process that serves a stock client and only moves bytes.

Produce (version 7): receive, check the CRC, stamp the offset, write. Fetch (version 4): the header, then sendfile from the one file of the
partition. It has no validation, no groups and no recovery. It supports one old version of eight APIs, and keeps topics and offsets in
memory. The difference to a broker's cost is the price of the broker's features.

usage: python -m tools.bench.bare_loop DIRECTORY     (prints READY host:port; stop it with SIGTERM)
"""

from __future__ import annotations

import asyncio
import bisect
import os
import socket
import struct
import sys
from collections.abc import Callable

import uvloop
from crc32c import crc32c

VERSIONS = {0: (3, 7), 1: (4, 4), 2: (1, 1), 3: (1, 1), 18: (0, 0), 19: (2, 2), 20: (1, 1), 22: (0, 0)}
RECEIVE_BYTES = 1 << 16
UNSUPPORTED_VERSION = 35
unpack, pack = struct.unpack_from, struct.pack
Answer = list[bytes | tuple[int, int, int]] | None
"""A response in pieces: bytes, or (descriptor, position, length) for sendfile. None: no response now."""


class Partition:
    """The file of a partition, and the position of each batch in it."""

    __slots__ = ("descriptor", "end", "offsets", "positions", "size")

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        self.end = self.size = 0
        self.offsets: list[int] = []
        self.positions: list[int] = []

    def append(self, batch: memoryview) -> int:
        base = self.end
        if crc32c(batch[21:]) != unpack(">I", batch, 17)[0]:
            raise ValueError("a wrong CRC")
        struct.pack_into(">q", batch, 0, base)
        os.pwrite(self.descriptor, batch, self.size)
        self.offsets.append(base)
        self.positions.append(self.size)
        self.size += len(batch)
        self.end = base + int(unpack(">i", batch, 23)[0]) + 1
        return base

    def find(self, offset: int, bytes_max: int) -> tuple[int, int, int]:
        if offset >= self.end:
            return self.descriptor, 0, 0
        at = bisect.bisect_right(self.offsets, offset) - 1
        first = self.positions[at]
        batch_end = self.positions[at + 1] if at + 1 < len(self.positions) else self.size
        return self.descriptor, first, max(min(bytes_max, self.size - first), batch_end - first)


class BareLoop:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.port = 0
        self.topics: dict[str, list[Partition]] = {}
        self.waiting: set[Callable[[], None]] = set()
        self.handlers = {
            2: self.list_offsets, 3: self.metadata, 18: self.api_versions, 19: self.create_topics, 20: self.delete_topics,
            22: self.init_producer_id,
        }  # fmt: skip

    def topic(self, name: str, partitions: int = 1) -> list[Partition]:
        if name not in self.topics:
            self.topics[name] = [Partition(f"{self.folder}/{name}-{index}") for index in range(partitions)]
        return self.topics[name]

    def handle(self, connection: Connection, frame: memoryview) -> Answer:
        key, _version, correlation_id, client_length = unpack(">hhih", frame, 0)
        at = 10 + max(client_length, 0)
        head = pack(">i", correlation_id)
        if key == 0:
            return self.produce(head, at, frame)
        if key == 1:
            return self.fetch(connection, head, at, frame)
        return self.handlers[key](head, at, frame)

    def produce(self, head: bytes, at: int, frame: memoryview) -> Answer:
        at += 2 + max(unpack(">h", frame, at)[0], 0)
        acks, _timeout, topics = unpack(">hii", frame, at)
        at += 10
        out = [head, pack(">i", topics)]
        for _ in range(topics):
            name, at = read_string(frame, at)
            partitions = self.topic(name)
            (count,) = unpack(">i", frame, at)
            at += 4
            out += [write_string(name), pack(">i", count)]
            for _ in range(count):
                index, length = unpack(">ii", frame, at)
                at += 8
                base = partitions[index].append(frame[at : at + length])
                at += length
                out.append(pack(">ihqqq", index, 0, base, -1, 0))
        out.append(b"\0\0\0\0")
        for wake in list(self.waiting):
            wake()
        return [b"".join(out)] if acks else None

    def fetch(self, connection: Connection, head: bytes, at: int, frame: memoryview) -> Answer:
        _replica, wait_ms, bytes_min, _bytes_max, _isolation, topics = unpack(">iiiibi", frame, at)
        at += 21
        wanted: list[tuple[str, int, int, int]] = []
        for _ in range(topics):
            name, at = read_string(frame, at)
            (count,) = unpack(">i", frame, at)
            at += 4
            wanted += [(name, *unpack(">iqi", frame, at + 16 * number)) for number in range(count)]
            at += 16 * count

        def attempt(enough: int) -> Answer:
            out: list[bytes | tuple[int, int, int]] = [head + b"\0\0\0\0" + pack(">i", len(wanted))]
            total = 0
            for name, index, offset, bytes_max in wanted:
                partition = self.topic(name)[index]
                found = partition.find(offset, bytes_max)
                total += found[2]
                end = partition.end
                out += [write_string(name) + pack(">iihqqii", 1, index, 0, end, end, 0, found[2]), found]
            return out if total >= enough else None

        now = attempt(0 if wait_ms == 0 else bytes_min)
        if now is not None:
            return now

        def wake(enough: int = bytes_min) -> None:
            if wake in self.waiting and (late := attempt(enough)) is not None:
                self.waiting.discard(wake)
                connection.send([late])

        self.waiting.add(wake)
        asyncio.get_running_loop().call_later(wait_ms / 1000, wake, 0)
        return None

    def list_offsets(self, head: bytes, at: int, frame: memoryview) -> Answer:
        (topics,) = unpack(">i", frame, at + 4)
        at += 8
        out = [head, pack(">i", topics)]
        for _ in range(topics):
            name, at = read_string(frame, at)
            (count,) = unpack(">i", frame, at)
            at += 4
            out += [write_string(name), pack(">i", count)]
            for _ in range(count):
                index, timestamp = unpack(">iq", frame, at)
                at += 12
                out.append(pack(">ihqq", index, 0, -1, self.topic(name)[index].end if timestamp == -1 else 0))
        return [b"".join(out)]

    def metadata(self, head: bytes, at: int, frame: memoryview) -> Answer:
        (count,) = unpack(">i", frame, at)
        at += 4
        names = []
        for _ in range(max(count, 0)):
            name, at = read_string(frame, at)
            names.append(name)
        names = list(self.topics) if count < 0 else names
        out = [head, pack(">ii", 1, 1), write_string("127.0.0.1"), pack(">ihii", self.port, -1, 1, len(names))]
        for name in names:
            partitions = self.topic(name)
            out += [pack(">h", 0), write_string(name), pack(">bi", 0, len(partitions))]
            out += [pack(">hiiiiii", 0, index, 1, 1, 1, 1, 1) for index in range(len(partitions))]
        return [b"".join(out)]

    def api_versions(self, head: bytes, _at: int, frame: memoryview) -> Answer:
        rows = b"".join(pack(">hhh", key, low, high) for key, (low, high) in VERSIONS.items())
        error_code = UNSUPPORTED_VERSION if unpack(">h", frame, 2)[0] else 0
        return [head + pack(">hi", error_code, len(VERSIONS)) + rows]

    def init_producer_id(self, head: bytes, _at: int, _frame: memoryview) -> Answer:
        return [head + pack(">ihqh", 0, 0, 7, 0)]

    def create_topics(self, head: bytes, at: int, frame: memoryview) -> Answer:
        (topics,) = unpack(">i", frame, at)
        at += 4
        out = [head, b"\0\0\0\0", pack(">i", topics)]
        for _ in range(topics):
            name, at = read_string(frame, at)
            partitions, _replicas, assignments, configs = unpack(">ihii", frame, at)
            assert assignments == 0, "the bare loop places its partitions itself"
            at += 14
            for _ in range(2 * configs):
                _, at = read_string(frame, at)
            self.topic(name, partitions)
            out += [write_string(name), b"\0\0\xff\xff"]
        return [b"".join(out)]

    def delete_topics(self, head: bytes, at: int, frame: memoryview) -> Answer:
        (topics,) = unpack(">i", frame, at)
        at += 4
        out = [head, b"\0\0\0\0", pack(">i", topics)]
        for _ in range(topics):
            name, at = read_string(frame, at)
            for partition in self.topics.pop(name, ()):
                os.close(partition.descriptor)
            out += [write_string(name), b"\0\0"]
        return [b"".join(out)]


def write_string(text: str) -> bytes:
    data = text.encode()
    return pack(">h", len(data)) + data


def read_string(frame: memoryview, at: int) -> tuple[str, int]:
    (length,) = unpack(">h", frame, at)
    end = at + 2 + max(length, 0)
    return bytes(frame[at + 2 : end]).decode(), end


class Connection:
    """One client. Small frames are parsed in the receive buffer; a large one is received into a buffer of its size. The loop blocks until a
    response is sent.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, bare: BareLoop, sock: socket.socket) -> None:
        self.loop, self.bare, self.socket = loop, bare, sock
        self.small = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.small)
        self.held = 0
        self.large: memoryview | None = None
        self.large_held = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(sock.fileno(), self.on_readable)

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.loop.remove_reader(self.socket.fileno())
            self.socket.close()

    def on_readable(self) -> None:
        try:
            if self.large is not None:
                count = self.socket.recv_into(self.large[self.large_held :])
            else:
                count = self.socket.recv_into(self.view[self.held :])
        except OSError:
            count = 0
        if count == 0:
            self.close()
        elif self.large is not None:
            self.large_held += count
            if self.large_held == len(self.large):
                frame, self.large = self.large, None
                self.send([self.bare.handle(self, frame)])
        else:
            self.take(self.held + count)

    def take(self, end: int) -> None:
        at, answers = 0, []
        while end - at >= 4:
            (size,) = unpack(">i", self.small, at)
            if end - at - 4 < size:
                break
            answers.append(self.bare.handle(self, self.view[at + 4 : at + 4 + size]))
            at += 4 + size
        if end - at >= 4 and unpack(">i", self.small, at)[0] + 4 > RECEIVE_BYTES:
            self.large = memoryview(bytearray(unpack(">i", self.small, at)[0]))
            self.large_held = end - at - 4
            self.large[: self.large_held] = self.view[at + 4 : end]
            at = end
        self.held = end - at
        self.view[: self.held] = self.view[at:end]
        self.send(answers)

    def send(self, answers: list[Answer]) -> None:
        out = bytearray()
        try:
            self.socket.setblocking(True)
            for answer in answers:
                if answer is None:
                    continue
                out += pack(">i", sum(part[2] if isinstance(part, tuple) else len(part) for part in answer))
                for part in answer:
                    if isinstance(part, bytes):
                        out += part
                    elif part[2]:
                        self.socket.sendall(out, getattr(socket, "MSG_MORE", 0))
                        out.clear()
                        self.send_file(*part)
            if out:
                self.socket.sendall(out)
            self.socket.setblocking(False)
        except OSError:
            self.close()

    def send_file(self, descriptor: int, position: int, length: int) -> None:
        while length:
            sent = os.sendfile(self.socket.fileno(), descriptor, position, length)
            position += sent
            length -= sent


async def main(folder: str) -> None:
    loop = asyncio.get_running_loop()
    bare = BareLoop(folder)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    listening.setblocking(False)
    bare.port = listening.getsockname()[1]
    loop.add_reader(listening.fileno(), lambda: Connection(loop, bare, listening.accept()[0]))
    print(f"READY 127.0.0.1:{bare.port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    uvloop.run(main(sys.argv[1]))
