"""LZ4 frames of independent blocks: other libraries read ours, we read theirs, and frames of another kind or damaged ones are passed to the
library."""

from __future__ import annotations

import random

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.wire import lz4_frames
from ottla.wire.compression import CODEC_LZ4
from ottla.wire.compression import decompress as decompress_any

ROOM = 16 << 20
KINDS = (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB, lz4.frame.BLOCKSIZE_MAX1MB, lz4.frame.BLOCKSIZE_MAX4MB)
SIZES = (0, 1, 3, 4, 5, 1000, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145, 600_000, 1 << 20)


def mixed(size: int) -> bytes:
    """Returns alternating 100 KB of text and of noise. So some blocks shrink, some do not, and some have both."""
    chance = random.Random(size)
    parts = [chance.randbytes(100_000) if turn % 2 else b"flight %d " % turn * 12_000 for turn in range(size // 100_000 + 1)]
    return b"".join(parts)[:size]


@pytest.mark.parametrize("size", SIZES)
def test_other_libraries_read_ours(size: int) -> None:
    for data in (mixed(size), bytes(size), random.Random(size).randbytes(size)):
        packed = lz4_frames.compress(memoryview(data))
        assert lz4.frame.decompress(packed) == data
        assert bytes(cramjam.lz4.decompress(packed)) == data
        assert lz4_frames.decompress(packed, ROOM) == data


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=2000), times=st.integers(1, 300))
def test_round_trip_of_anything(data: bytes, times: int) -> None:
    packed = lz4_frames.compress(data * times)
    assert lz4.frame.decompress(packed) == data * times
    assert decompress_any(CODEC_LZ4, packed, ROOM) == data * times


@pytest.mark.parametrize(("size", "block_bytes"), [(1, 64 << 10), (64 << 10, 64 << 10), ((64 << 10) + 1, 256 << 10), (1 << 20, 256 << 10)])
def test_what_the_header_says(size: int, block_bytes: int) -> None:
    info = lz4.frame.get_frame_info(lz4_frames.compress(bytes(size)))
    assert info["block_size"] == block_bytes
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_frames_of_others_are_read(kind: int, size: int) -> None:
    data = mixed(size)
    packed = lz4.frame.compress(data, block_size=kind, block_linked=False, store_size=False)
    assert lz4_frames.decompress(packed, ROOM) == data


@pytest.mark.parametrize("name", ["block_linked", "content_checksum", "block_checksum", "store_size"])
def test_frames_of_another_kind_are_left_to_others(name: str) -> None:
    data = mixed(300_000)
    options = {"block_linked": False, "store_size": False, name: True}
    packed = lz4.frame.compress(data, **options)
    assert lz4_frames.decompress(packed, ROOM) is None
    assert decompress_any(CODEC_LZ4, packed, ROOM) == data


def test_nothing_is_allocated_beyond_the_room() -> None:
    packed = lz4_frames.compress(bytes(1 << 20))
    assert lz4_frames.decompress(packed, (1 << 20) - 1) is None
    assert lz4_frames.decompress(packed, 1 << 20) == bytes(1 << 20)


def test_many_tiny_blocks_are_left_to_others() -> None:
    """A Python loop over so many blocks would cost more than the library needs for the whole frame."""
    blocks = b"\x01\x00\x00\x80x" * 5000
    packed = lz4_frames.HEADERS[64 << 10] + blocks + bytes(4)
    assert lz4_frames.decompress(packed, 1 << 40) is None
    assert decompress_any(CODEC_LZ4, packed, ROOM) == b"x" * 5000


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_damage_is_found_as_others_find_it(seed: int) -> None:
    """Whatever the damage, the result is the library's result, and a frame that the library refuses is refused."""
    chance = random.Random(seed)
    packed = bytearray(lz4_frames.compress(b"abcdefgh" * 300 + chance.randbytes(300)))
    for _ in range(chance.randrange(1, 4)):
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        del packed[chance.randrange(len(packed)) :]
    try:
        expected = bytes(cramjam.lz4.decompress(bytes(packed)))
    except cramjam.DecompressionError:
        with pytest.raises(WireError):
            decompress_any(CODEC_LZ4, packed, 1 << 20)
        return
    assert decompress_any(CODEC_LZ4, packed, 1 << 20) == expected


def test_a_block_that_unpacks_to_more_than_the_frame_allows_is_refused() -> None:
    block = bytes(cramjam.lz4.compress_block(bytes((64 << 10) + 1), store_size=False))
    packed = lz4_frames.HEADERS[64 << 10] + len(block).to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(WireError, match="broken lz4"):
        lz4_frames.decompress(packed, ROOM)
    with pytest.raises(WireError, match="broken lz4"):
        decompress_any(CODEC_LZ4, packed, ROOM)
