"""Senders: whatever the socket takes at a time, the peer gets every byte once and in order, slices of files included."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.adapters.disk import OsDisk
from ottla.server.sender import Part, SocketSender
from ottla.storage.file_slice import FileSlice, SharedFile


def exchange(parts: Sequence[Sequence[Part]]) -> tuple[bytes, SocketSender, list[str]]:
    """Sends the parts over a socket pair with small buffers; returns what arrived."""

    async def run() -> tuple[bytes, SocketSender, list[str]]:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        events: list[str] = []
        sender = SocketSender(loop, near, lambda: events.append("drained"), lambda: events.append("lost"))
        for group in parts:
            sender.send(group)
        size = sum(len(part) for group in parts for part in group)
        arrived = b""
        while len(arrived) < size:
            arrived += await asyncio.wait_for(loop.sock_recv(far, 65536), 5)
        await asyncio.sleep(0)
        sender.close()
        near.close()
        far.close()
        return arrived, sender, events

    return asyncio.run(run())


@pytest.fixture
def segment(tmp_path: Path) -> tuple[bytes, SharedFile]:
    data = os.urandom(300_000)
    path = tmp_path / "segment"
    path.write_bytes(data)
    return data, SharedFile(OsDisk().open(str(path)))


def test_small_answers() -> None:
    arrived, sender, _ = exchange([[b"one"], [b"two", b"three"]])
    assert arrived == b"onetwothree" and sender.queued_bytes == 0 and sender.bytes_sent == 11


def test_more_than_the_socket_takes() -> None:
    data = os.urandom(500_000)
    arrived, sender, events = exchange([[data], [b"tail"]])
    assert arrived == data + b"tail" and sender.queued_bytes == 0 and events == ["drained"]


def test_slices_of_files_between_bytes(segment: tuple[bytes, SharedFile]) -> None:
    data, shared = segment
    parts: list[Part] = [b"head", FileSlice(shared, 10, 200_000), b"middle", FileSlice(shared, 5, 7), FileSlice(shared, 0, 300_000), b"end"]
    arrived, sender, _ = exchange([parts, [b"next"]])
    assert arrived == b"head" + data[10:200_010] + b"middle" + data[5:12] + data + b"end" + b"next"
    assert sender.queued_bytes == 0


def test_a_slice_that_the_file_cannot_fill_loses_the_connection(segment: tuple[bytes, SharedFile]) -> None:
    _, shared = segment

    async def run() -> list[str]:
        near, far = socket.socketpair()
        near.setblocking(False)
        events: list[str] = []
        sender = SocketSender(asyncio.get_running_loop(), near, lambda: None, lambda: events.append("lost"))
        sender.send([b"head", FileSlice(shared, 299_999, 10)])
        near.close()
        far.close()
        return events

    assert asyncio.run(run()) == ["lost"]


def test_a_peer_that_is_gone_is_told_once() -> None:
    async def run() -> list[str]:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.close()
        events: list[str] = []
        sender = SocketSender(asyncio.get_running_loop(), near, lambda: None, lambda: events.append("lost"))
        sender.send([b"x" * 10])
        near.close()
        return events

    assert asyncio.run(run()) == ["lost"]
