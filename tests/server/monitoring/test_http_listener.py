"""The streams of the HTTP port's connections."""

from __future__ import annotations

import asyncio
import socket
import struct

from ottla.server.monitoring.http_listener import streams


def test_a_peer_that_resets_has_gone_like_one_that_closes(loop: asyncio.AbstractEventLoop) -> None:
    """Formerly the error of a reset connection was kept, and logged with a traceback when the connection was freed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()

    async def converse() -> bytes:
        accepted.setblocking(False)
        reader, writer = await streams(accepted, None, limit=100, handshake_seconds=10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        rest = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        return rest

    assert loop.run_until_complete(converse()) == b""
