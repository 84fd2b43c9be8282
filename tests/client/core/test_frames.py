"""Frames come out whole, whatever way the bytes are cut."""

from __future__ import annotations

import struct

import pytest

from ottla.base.errors import WireError
from ottla.client.core.frames import FRAME_BYTES_MAX, SMALL_BYTES, FrameReader

FRAMES = [b"four", b"a longer frame", b"\0" * 1000, b"small", b"z" * 9000, b"the last"]
STREAM = b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


@pytest.mark.parametrize("step", [1, 3, 5, len(STREAM)])
def test_any_cut_of_the_stream_gives_the_same_frames(step: int) -> None:
    reader = FrameReader()
    found = [bytes(frame) for at in range(0, len(STREAM), step) for frame in reader.feed(STREAM[at : at + step])]
    assert found == FRAMES


@pytest.mark.parametrize("most", [7, SMALL_BYTES, len(STREAM)])
def test_a_caller_receives_into_the_buffer(most: int) -> None:
    """`has_frame` is true as long as a frame can be taken without another read."""
    reader, found, at = FrameReader(), [], 0
    while at < len(STREAM):
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(STREAM) - at, most)
        buffer[:count] = STREAM[at : at + count]
        at += count
        reader.buffer_updated(count)
        while reader.has_frame():
            frame = reader.next_frame()
            assert frame is not None
            found.append(bytes(frame))
        assert reader.next_frame() is None
    assert found == FRAMES


def test_a_large_frame_is_received_in_place() -> None:
    reader = FrameReader()
    size = 10 * SMALL_BYTES
    reader.buffer_updated(_put(reader, struct.pack(">i", size) + b"x" * 100))
    assert reader.next_frame() is None and len(reader.get_buffer()) == size - 100
    reader.buffer_updated(_put(reader, b"y" * (size - 100)))
    assert reader.has_frame() and bytes(reader.next_frame() or b"") == b"x" * 100 + b"y" * (size - 100)
    assert len(reader.get_buffer()) == SMALL_BYTES


def _put(reader: FrameReader, data: bytes) -> int:
    reader.get_buffer()[: len(data)] = data
    return len(data)


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_BYTES_MAX + 1])
def test_an_impossible_length_is_refused_before_memory_is_taken(size: int) -> None:
    with pytest.raises(WireError, match=f"a frame of {size} bytes"):
        list(FrameReader().feed(struct.pack(">i", size)))


def test_a_frame_is_not_overwritten_by_the_next() -> None:
    reader = FrameReader()
    first, second = reader.feed(struct.pack(">i", 4) + b"aaaa" + struct.pack(">i", 4) + b"bbbb")
    assert (bytes(first), bytes(second)) == (b"aaaa", b"bbbb")
