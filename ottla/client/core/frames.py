"""Splits the bytes of a connection into frames. A frame is an int32 length and then as many bytes.

The caller receives bytes directly into the buffer of `get_buffer`, reports their number to `buffer_updated`, and takes the frames with
`next_frame`. Small frames are received into a small buffer, several at a time, and copied. A large frame is received into a buffer of its
own (`Buffers`). A caller that already has the bytes calls `feed`. Bytes may arrive in pieces of any size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ottla.base.errors import WireError

FRAME_BYTES_MIN = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Maximum length of a frame in bytes. An answer with a larger length is malformed."""
SMALL_BYTES = 4096
REUSED_BYTES_MIN = 1 << 20
REUSED_BYTES_MAX = 8 << 20
"""Lengths of frames whose buffers are used again. Clearing new memory costs a tenth of the time of receiving into it; smaller frames have
little to clear, and larger buffers would take memory of an idle connection."""
REUSED_COUNT_MAX = 4

_INT32 = struct.Struct(">i")


class Buffers:
    """Buffers for large frames. A buffer is used again when no memoryview of it is left, so frames stay valid as long as they are used."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Returns `size` writable bytes of any content."""
        if not REUSED_BYTES_MIN <= size <= REUSED_BYTES_MAX:
            return memoryview(bytearray(size))
        buffer = next((one for one in self._kept if len(one) >= size and _is_unused(one)), None)
        if buffer is None:
            buffer = bytearray(-(-size // REUSED_BYTES_MIN) * REUSED_BYTES_MIN)
            self._kept = [*self._kept[1 - REUSED_COUNT_MAX :], buffer]
        return memoryview(buffer)[:size]


def _is_unused(buffer: bytearray) -> bool:
    """Whether no memoryview of the buffer is left: only then Python changes its length."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class FrameReader:
    """See the module."""

    def __init__(self) -> None:
        self._buffers = Buffers()
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._begin = 0  # the start of the bytes in `_small` that belong to later frames
        self._large: memoryview | None = None
        self.have = 0
        """The end of the received bytes in `_large`, or in `_small`; 0 if all of them are taken."""

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes, never empty. Call it when `next_frame` has returned None."""
        return self._small[self.have :] if self._large is None else self._large[self.have :]

    def buffer_updated(self, count: int) -> None:
        """Accepts `count` bytes in the buffer."""
        self.have += count

    def next_frame(self) -> memoryview | None:
        """Returns the next frame, without its length, or None if it is not complete. Raises `WireError` for an invalid length; then the
        connection must be closed."""
        large = self._large
        if large is not None:
            if self.have < len(large):
                return None
            self._large, self._begin, self.have = None, 0, 0
            return large
        begin, end = self._begin, self.have
        size = self._size()
        if size and (following := begin + _INT32.size + size) <= end:
            self._begin, self.have = (following, end) if following < end else (0, 0)
            return memoryview(bytearray(self._small[begin + _INT32.size : following]))
        rest = bytes(self._small[begin:end])
        if size > SMALL_BYTES - _INT32.size:
            self._large = self._buffers.take(size)
            self.have = len(rest) - _INT32.size
            self._large[: self.have] = rest[_INT32.size :]
        else:
            self._small[: len(rest)] = rest
            self._begin, self.have = 0, len(rest)
        return None

    def has_frame(self) -> bool:
        """Whether `next_frame` returns a frame or raises."""
        if self._large is not None:
            return self.have == len(self._large)
        try:
            size = self._size()
        except WireError:
            return True
        return 0 < size <= self.have - self._begin - _INT32.size

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """Yields the frames that these bytes complete. The remaining bytes begin the next frame."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self.buffer_updated(count)
            while (frame := self.next_frame()) is not None:
                yield frame

    def _size(self) -> int:
        """Returns the length of the next frame; 0 if it has not arrived yet."""
        if self.have - self._begin < _INT32.size:
            return 0
        (size,) = _INT32.unpack_from(self._small, self._begin)
        if not FRAME_BYTES_MIN <= size <= FRAME_BYTES_MAX:
            raise WireError(f"a frame of {size} bytes")
        return size  # type: ignore[no-any-return]
