"""Splits the bytes of a connection into frames. A frame is an int32 length and then as many bytes.

The caller receives bytes directly into the buffer of `get_buffer` and reports their number to `buffer_updated`, so that the bytes of a
large answer are not copied. A caller that already has the bytes calls `feed`. Both accept pieces of any size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.base.errors import WireError

FRAME_BYTES_MIN = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Maximum length of a frame in bytes. An answer with a larger length is malformed."""

_INT32 = struct.Struct(">i")


class FrameReader:
    """See the module. Raises WireError for an invalid length. Then the connection must be closed."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_INT32.size))
        self._have = 0
        self._is_body = False

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes. It is as long as the missing part of the length or of the frame, and never empty."""
        return self._view[self._have :]

    def buffer_updated(self, count: int) -> memoryview | None:
        """Accepts `count` bytes in the buffer. Returns the frame, without its length, if they complete it, else None."""
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
        """Yields the frames that these bytes complete. The remaining bytes begin the next frame."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            frame = self.buffer_updated(count)
            if frame is not None:
                yield frame
