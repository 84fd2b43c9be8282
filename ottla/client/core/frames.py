"""Cuts the bytes of a connection into frames: an int32 length, then as many bytes.

A shell asks `get_buffer` where the next bytes go, receives right into it and reports the number by `buffer_updated`, so that the bytes of a
large answer are written once. A shell that is handed bytes calls `feed`. Both take any cut of the stream, down to single bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.base.errors import WireError

FRAME_BYTES_MIN = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""An answer that announces more than this is malformed."""

_INT32 = struct.Struct(">i")


class FrameReader:
    """See the module. WireError when a length is impossible; the connection is then of no further use."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_INT32.size))
        self._have = 0
        self._is_body = False

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: never empty, and never longer than what is missing of the length or of the frame."""
        return self._view[self._have :]

    def buffer_updated(self, count: int) -> memoryview | None:
        """Takes note of `count` bytes in the buffer; the frame that they complete, without its length."""
        self._have += count
        if self._have < len(self._view):
            return None
        view, self._have = self._view, 0
        if self._is_body:
            self._is_body = False
            self._view = memoryview(bytearray(_INT32.size))
            return view
        (size,) = _INT32.unpack(view)
        if not FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
            raise WireError(f"a frame of {size} bytes")
        self._is_body = True
        self._view = memoryview(bytearray(size))
        return None

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """The frames that these bytes complete; what is left over begins the next."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            frame = self.buffer_updated(count)
            if frame is not None:
                yield frame
