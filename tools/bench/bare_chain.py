"""Measures the lower bound of a replicated write: a leader and two followers that only send and store the bytes of one write.

The client sends a request to the leader. The leader writes it to a file and sends it to both followers. Each follower writes it to its own
file and sends its next request. From this request the leader knows that the follower has the bytes, and sends the acknowledgement. A write
therefore takes the same four hops as a write with acks=all in a cluster of three brokers: client, leader, followers, leader, client.
Messages have the sizes of Kafka's messages for a record of 100 bytes; nothing is decoded or checked.

usage: python -m tools.bench.bare_chain leader FILE              (prints READY host:port; stop it with SIGTERM)
       python -m tools.bench.bare_chain follower FILE HOST:PORT
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from typing import cast

import uvloop

FOLLOWERS = 2
PRODUCE_BYTES = 230
"""Size of a Produce request with a record of 100 bytes, and roughly of the Fetch answer with this record."""
FETCH_BYTES = 120
ACKNOWLEDGEMENT_BYTES = 60
FOLLOWER = b"f"
"""The first byte that a follower sends. A client's first byte is another."""


class Peer(asyncio.Protocol, ABC):
    """A connection that gets messages of one size. `message` is called for each."""

    def __init__(self) -> None:
        self.size = 0
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while self.size and len(received) >= self.size:
            message = bytes(received[: self.size])
            del received[: self.size]
            self.message(message)

    @abstractmethod
    def message(self, message: bytes) -> None:
        """Processes one message."""


class Leader:
    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.size = 0
        self.followers: list[Accepted] = []
        self.client: Accepted | None = None
        self.missing = 0

    def produce(self, client: Accepted, message: bytes) -> None:
        os.pwrite(self.file, message, self.size)
        self.size += len(message)
        self.client, self.missing = client, FOLLOWERS
        for follower in self.followers:
            follower.transport.write(message)

    def fetched(self) -> None:
        self.missing -= 1
        if not self.missing and self.client is not None:
            self.client.transport.write(bytes(ACKNOWLEDGEMENT_BYTES))


class Accepted(Peer):
    """A connection of the leader: a client's, or a follower's."""

    def __init__(self, leader: Leader) -> None:
        super().__init__()
        self.leader = leader
        self.is_follower = False

    def data_received(self, data: bytes) -> None:
        if not self.size:
            self.is_follower = data[:1] == FOLLOWER
            self.size = FETCH_BYTES if self.is_follower else PRODUCE_BYTES
            if self.is_follower:
                self.leader.followers.append(self)
        super().data_received(data)

    def message(self, message: bytes) -> None:
        if self.is_follower:
            self.leader.fetched()
        else:
            self.leader.produce(self, message)


class Follower(Peer):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.size = PRODUCE_BYTES
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(FOLLOWER * FETCH_BYTES)

    def message(self, message: bytes) -> None:
        os.pwrite(self.file, message, self.at)
        self.at += len(message)
        self.transport.write(FOLLOWER * FETCH_BYTES)


async def lead(path: str) -> None:
    leader = Leader(path)
    server = await asyncio.get_running_loop().create_server(lambda: Accepted(leader), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"READY {host}:{port}", flush=True)
    await asyncio.Event().wait()


async def follow(path: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    await asyncio.get_running_loop().create_connection(lambda: Follower(path), host, int(port))
    print(f"READY {address}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["leader", path]:
            uvloop.run(lead(path))
        case ["follower", path, address]:
            uvloop.run(follow(path, address))
        case _:
            sys.exit(__doc__)
