"""Compressed records: round trips, foreign encoders, and decompression bombs. Data is unpacked correctly, or refused with a `WireError`
within bounded memory."""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import aiokafka.codec
import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.wire import compression
from ottla.wire.compression import CODEC_GZIP, CODEC_LZ4, CODEC_NAMES, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, compress, decompress

PACKED = (CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD)
CAP = 1 << 20
SAMPLES = (b"", b"x", b"hello world " * 5000, random.Random(1).randbytes(100_000), bytes(700_000))

by_codec = pytest.mark.parametrize("codec", PACKED, ids=[CODEC_NAMES[codec] for codec in PACKED])


def zstd_bomb(blocks: int, *, window_log: int = 17, content_size: int | None = None) -> bytes:
    """Returns a frame of run-length blocks: 4 bytes each, and 128 KiB when unpacked."""
    descriptor = 0 if content_size is None else 0xC0
    head = b"\x28\xb5\x2f\xfd" + bytes([descriptor, (window_log - 10) << 3])
    head += b"" if content_size is None else struct.pack("<Q", content_size)
    run = [struct.pack("<I", (128 * 1024) << 3 | 1 << 1 | last)[:3] + b"\0" for last in (0, 1)]
    return head + run[0] * (blocks - 1) + run[1]


def xerial(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + b"".join(struct.pack(">I", len(block)) + block for block in blocks)


@by_codec
@pytest.mark.parametrize("data", SAMPLES, ids=["empty", "one", "text", "noise", "zeros"])
def test_round_trip(codec: int, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), CAP)) == data
    assert bytes(decompress(codec, memoryview(compress(codec, memoryview(data))), len(data))) == data


@by_codec
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=3000), times=st.integers(1, 60))
def test_round_trip_of_anything(codec: int, data: bytes, times: int) -> None:
    assert bytes(decompress(codec, compress(codec, data * times), CAP)) == data * times


def test_none_is_the_data_itself() -> None:
    assert compress(CODEC_NONE, memoryview(b"abc")) == b"abc"
    assert decompress(CODEC_NONE, b"abc", 3) == b"abc"
    with pytest.raises(WireError, match="more than 2 bytes"):
        decompress(CODEC_NONE, b"abc", 2)


def test_levels_change_the_size() -> None:
    data = b"".join(b"%d,%d;" % (n % 97, n * n % 1013) for n in range(20_000))
    assert len(compress(CODEC_GZIP, data, 9)) < len(compress(CODEC_GZIP, data, 1))
    assert len(compress(CODEC_LZ4, data, 12)) < len(compress(CODEC_LZ4, data, 0))
    assert len(compress(CODEC_ZSTD, data, 19)) < len(compress(CODEC_ZSTD, data, 1))


def test_other_libraries_read_ours() -> None:
    data = b"some text, again and again; " * 9000
    assert gzip.decompress(compress(CODEC_GZIP, data)) == data
    assert bytes(aiokafka.codec.snappy_decode(compress(CODEC_SNAPPY, data))) == data
    assert lz4.frame.decompress(compress(CODEC_LZ4, data)) == data
    assert bytes(cramjam.zstd.decompress(compress(CODEC_ZSTD, data))) == data


def test_we_read_other_libraries() -> None:
    data = b"some text, again and again; " * 9000
    forms = [
        (CODEC_GZIP, gzip.compress(data)),
        (CODEC_SNAPPY, bytes(cramjam.snappy.compress_raw(data))),
        (CODEC_SNAPPY, aiokafka.codec.snappy_encode(data, xerial_compatible=True)),
        (CODEC_LZ4, lz4.frame.compress(data, block_linked=True, content_checksum=True, store_size=True)),
        (CODEC_LZ4, lz4.frame.compress(data, block_linked=False, store_size=False)),
        (CODEC_LZ4, bytes(cramjam.lz4.compress(data))),
        (CODEC_ZSTD, bytes(cramjam.zstd.compress(data, 19))),
    ]
    for codec, packed in forms:
        assert bytes(decompress(codec, packed, len(data))) == data


def test_lz4_is_one_frame_of_independent_blocks() -> None:
    """Java's reader refuses linked blocks, and never checks a content checksum."""
    packed = compress(CODEC_LZ4, random.Random(2).randbytes(300_000))
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags = packed[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "blocks are independent"
    assert not flags & 0x04, "no content checksum"


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1 << 18, 1 << 20])
def test_lz4_gets_as_much_room_as_its_blocks_can_fill(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise needs little more room than its packed size. A first buffer that is too small would be allocated in vain."""
    data = random.Random(size).randbytes(size)
    forms = [compress(CODEC_LZ4, data)]
    for checksum in (False, True):
        for block_size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX1MB):
            options = {"block_size": block_size, "block_checksum": checksum, "store_size": checksum}
            forms.append(lz4.frame.compress(data, **options))
    monkeypatch.setattr(compression, "_BUFFER_GROWTH", 0)
    for packed in forms:
        room = compression._lz4_first_bytes(packed)
        assert size < room <= size + (1 << 20) + 1
        assert bytes(decompress(CODEC_LZ4, packed, 4 << 20)) == data


def test_lz4_frames_one_after_another_get_the_usual_room() -> None:
    small, large = random.Random(1).randbytes(10), random.Random(2).randbytes(1 << 20)
    for checksum in (False, True):
        first = lz4.frame.compress(small, content_checksum=checksum)
        assert compression._lz4_first_bytes(first) < 1 << 17
        both = first + compress(CODEC_LZ4, large)
        assert compression._lz4_first_bytes(both) == compression._likely_bytes(both)


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD])
def test_frames_one_after_another(codec: int) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"") + compress(codec, b"second" * 5000)
    assert bytes(decompress(codec, packed, CAP)) == b"first " + b"second" * 5000


def test_the_cap_is_exact() -> None:
    for codec in PACKED:
        for data in (bytes(50_000), random.Random(3).randbytes(50_000)):
            assert len(decompress(codec, compress(codec, data), 50_000)) == 50_000
            with pytest.raises(WireError, match="more than 49999 bytes"):
                decompress(codec, compress(codec, data), 49_999)


@by_codec
def test_the_cap_holds_over_many_frames(codec: int) -> None:
    packed = (
        compress(codec, bytes(20_000)) * 10 if codec != CODEC_SNAPPY else xerial(*[bytes(cramjam.snappy.compress_raw(bytes(20_000)))] * 10)
    )
    assert len(decompress(codec, packed, 200_000)) == 200_000
    with pytest.raises(WireError, match="more than"):
        decompress(codec, packed, 199_999)


@by_codec
def test_nothing_packed_is_refused(codec: int) -> None:
    with pytest.raises(WireError):
        decompress(codec, b"", CAP)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(WireError, match="unknown compression codec"):
        decompress(codec, b"abc", CAP)


@by_codec
def test_cut_off_anywhere(codec: int) -> None:
    packed = compress(codec, b"abcdefgh" * 30 + random.Random(4).randbytes(40_000))
    whole = bytes(decompress(codec, packed, CAP))
    for end in [*range(40), *range(40, len(packed), 997), len(packed) - 1]:
        try:
            shorter = bytes(decompress(codec, packed[:end], CAP))
        except WireError:
            continue
        # Java's snappy framing has no end mark: a cut between two blocks cannot be seen here, the batch's record count shows it.
        assert codec == CODEC_SNAPPY
        assert len(shorter) % 32768 == 0
        assert whole.startswith(shorter)


@by_codec
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_flipped_bits_raise_nothing_else(codec: int, seed: int) -> None:
    chance = random.Random(seed)
    packed = bytearray(compress(codec, b"abcdefgh" * 300 + chance.randbytes(300)))
    for _ in range(chance.randrange(1, 4)):
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
    try:
        assert len(decompress(codec, packed, CAP)) <= CAP
    except WireError as error:
        assert str(error)


@by_codec
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_noise_raises_nothing_else(codec: int, data: bytes) -> None:
    for packed in (
        data,
        b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + data,
        b"\x28\xb5\x2f\xfd" + data,
        b"\x04\x22\x4d\x18" + data,
        b"\x1f\x8b\x08\0" + data,
    ):
        try:
            assert len(decompress(codec, packed, CAP)) <= CAP
        except WireError as error:
            assert str(error)


def test_bytes_behind_the_data_are_refused() -> None:
    for codec in PACKED:
        with pytest.raises(WireError):
            decompress(codec, compress(codec, b"abc" * 100) + b"trailing bytes", CAP)


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"\xff\xff\xff\xff\x0fabc", "unpacks to 4294967295"),
        (b"\xff\xff\xff\xff\xff\xff\xff", "without a size"),
        (b"\x80", "without a size"),
        (b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\xff\xff\xff\xffabc", "says -1 bytes"),
        (b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\x7f\xff\xff\xffabc", "says 2147483647 bytes"),
        (b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\0\0\0\0", "says 0 bytes"),
        (b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\0\0", "length of a snappy block"),
        (b"\x82SNAPPY\x00\0\0\0\1", "header is cut off"),
        (b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\0\0\0\x05\xff\xff\xff\xff\x0f", "unpacks to 4294967295"),
    ],
)
def test_snappy_lengths_that_lie(packed: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says):
        decompress(CODEC_SNAPPY, packed, CAP)


def test_zstd_windows_and_sizes_that_lie() -> None:
    assert len(decompress(CODEC_ZSTD, zstd_bomb(4, window_log=27), CAP)) == 4 * 128 * 1024
    for window_log in (28, 31):
        with pytest.raises(WireError, match="broken zstd"):
            decompress(CODEC_ZSTD, zstd_bomb(4, window_log=window_log), CAP)
    for content_size in (5, 1 << 40, 1 << 63):
        with pytest.raises(WireError):
            decompress(CODEC_ZSTD, zstd_bomb(4, content_size=content_size), CAP)


def test_lz4_content_size_that_lies() -> None:
    """The stated size is not trusted. The test corrects the checksum of the frame's header, so only the size is wrong."""
    honest = bytes(lz4.frame.compress(b"abc" * 1000, store_size=True, content_checksum=False))
    assert lz4.frame.get_frame_info(honest)["content_size"] == 3000
    for claimed in (2999, 3001, 1 << 62):
        head = honest[4:6] + struct.pack("<Q", claimed)
        lie = honest[:4] + head + bytes([xxh32(head) >> 8 & 0xFF]) + honest[15:]
        assert lz4.frame.get_frame_info(lie)["content_size"] == claimed
        with pytest.raises(WireError):
            decompress(CODEC_LZ4, lie, CAP)


def xxh32(data: bytes) -> int:
    """xxHash-32 of fewer than 16 bytes, for the header checksum of lz4 frames."""
    mask = 0xFFFFFFFF

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (32 - bits)) & mask

    state = (374761393 + len(data)) & mask
    position = 0
    while position + 4 <= len(data):
        (lane,) = struct.unpack_from("<I", data, position)
        state = rotate((state + lane * 3266489917) & mask, 17) * 668265263 & mask
        position += 4
    for byte in data[position:]:
        state = rotate((state + byte * 374761393) & mask, 11) * 2654435761 & mask
    state = (state ^ state >> 15) * 2246822519 & mask
    state = (state ^ state >> 13) * 3266489917 & mask
    return state ^ state >> 16


BOMBS = """
import json, resource, sys
from ottla.base.errors import WireError
from ottla.wire import compression
from ottla.wire.compression import compress, decompress
for codec in (1, 2, 3, 4):
    decompress(codec, compress(codec, b"warm"), 10)
answers = {}
for name, codec, path, repeat in json.loads(sys.argv[1]):
    packed = open(path, "rb").read() * repeat
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decompress(codec, packed, 8 << 20)
        answers[name] = ["unpacked", 0]
    except WireError as error:
        answers[name] = [str(error), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]
print(json.dumps(answers))
"""


def test_bombs_stay_within_the_cap(tmp_path: Path) -> None:
    """Each would unpack to hundreds of MiB; the memory of the process grows by the cap of 8 MiB and a little."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    bombs = {
        "gzip": (CODEC_GZIP, b"".join(deflater.compress(bytes(1 << 20)) for _ in range(256)) + deflater.flush(), 1),
        "gzip members": (CODEC_GZIP, gzip.compress(bytes(1 << 20)), 256),
        "snappy": (CODEC_SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(64 << 20))), 1),
        "snappy blocks": (CODEC_SNAPPY, xerial(*[bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))] * 64), 1),
        "snappy empty blocks": (CODEC_SNAPPY, xerial(*[b"\0"] * 100_000) + xerial(b"\xff\xff\xff\xff\x0f")[16:], 1),
        "lz4": (CODEC_LZ4, bytes(cramjam.lz4.compress(bytes(1 << 20))), 256),
        "lz4 linked": (CODEC_LZ4, bytes(cramjam.lz4.compress(bytes(64 << 20))), 1),
        "zstd": (CODEC_ZSTD, zstd_bomb(256 * 8), 1),
        "zstd wide window": (CODEC_ZSTD, zstd_bomb(256 * 8, window_log=27), 1),
        "zstd frames": (CODEC_ZSTD, zstd_bomb(8), 256),
    }
    rows = []
    for name, (codec, packed, repeat) in bombs.items():
        path = tmp_path / name
        path.write_bytes(packed)
        rows.append([name, codec, str(path), repeat])
    done = subprocess.run([sys.executable, "-c", BOMBS, json.dumps(rows)], capture_output=True, text=True, check=True, timeout=60)
    answers = json.loads(done.stdout)
    assert set(answers) == set(bombs)
    assert all("unpack" in message for message, _ in answers.values()), answers
    # The process's memory peak only rises, so the total growth is that of the worst bomb.
    assert sum(grown_kib for _, grown_kib in answers.values()) <= 16 * 1024, answers


def test_libraries_are_loaded_on_use_only() -> None:
    code = "import sys, ottla.wire.records; print('cramjam' in sys.modules, 'gzip' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
