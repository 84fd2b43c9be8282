"""Frames come out whole, whatever way the bytes are cut."""

from __future__ import annotations

import struct

import pytest

from ottla.base.errors import WireError
from ottla.client.core.frames import FRAME_BYTES_MAX, FrameReader

FRAMES = [b"four", b"a longer frame", b"\0" * 1000]
STREAM = b"".join(struct.pack(">i", len(frame)) + frame for frame in FRAMES)


@pytest.mark.parametrize("step", [1, 3, 5, len(STREAM)])
def test_any_cut_of_the_stream_gives_the_same_frames(step: int) -> None:
    reader = FrameReader()
    found = [bytes(frame) for at in range(0, len(STREAM), step) for frame in reader.feed(STREAM[at : at + step])]
    assert found == FRAMES


def test_a_shell_receives_right_into_the_frame() -> None:
    reader, found, at = FrameReader(), [], 0
    while at < len(STREAM):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(STREAM) - at)
        room[:count] = STREAM[at : at + count]
        at += count
        frame = reader.buffer_updated(count)
        if frame is not None:
            found.append(bytes(frame))
    assert found == FRAMES


@pytest.mark.parametrize("size", [-1, 0, 3, FRAME_BYTES_MAX + 1])
def test_an_impossible_length_is_refused_before_memory_is_taken(size: int) -> None:
    with pytest.raises(WireError, match=f"a frame of {size} bytes"):
        list(FrameReader().feed(struct.pack(">i", size)))


def test_a_frame_is_not_overwritten_by_the_next() -> None:
    reader = FrameReader()
    first, second = reader.feed(struct.pack(">i", 4) + b"aaaa" + struct.pack(">i", 4) + b"bbbb")
    assert (bytes(first), bytes(second)) == (b"aaaa", b"bbbb")
