"""Frames come out whole, whatever way the bytes are cut."""

from __future__ import annotations

import struct

import pytest

from ottla.base.errors import WireError
from ottla.client.core.frames import (
    FRAME_BYTES_MAX,
    REUSED_BYTES_MAX,
    REUSED_BYTES_MIN,
    REUSED_COUNT_MAX,
    SMALL_BYTES,
    Buffers,
    FrameReader,
)

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


def test_the_buffer_of_a_large_frame_is_used_again_without_references_to_it() -> None:
    buffers = Buffers()
    first, second = buffers.take(REUSED_BYTES_MIN), buffers.take(REUSED_BYTES_MIN + 1)
    part, first_buffer, second_buffer = first[5:9], first.obj, second.obj
    del first
    other = buffers.take(REUSED_BYTES_MIN).obj
    assert other is not first_buffer and other is not second_buffer, "a part of the frame is still used"
    del part
    again = buffers.take(REUSED_BYTES_MIN)
    assert again.obj is first_buffer and len(again) == REUSED_BYTES_MIN
    assert buffers.take(REUSED_BYTES_MAX + 1).obj is not buffers.take(REUSED_BYTES_MAX + 1).obj


def test_idle_connections_keep_few_buffers() -> None:
    buffers = Buffers()
    taken = [buffers.take(REUSED_BYTES_MAX) for _ in range(3 * REUSED_COUNT_MAX)]
    kept = {id(frame.obj) for frame in taken}
    alive = [frame.obj for frame in taken]
    del taken
    found = [buffers.take(REUSED_BYTES_MAX) for _ in alive]
    assert sum(id(frame.obj) in kept for frame in found) == REUSED_COUNT_MAX
