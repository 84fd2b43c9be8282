"""Compresses record batches, and decompresses them up to a limit of bytes.

Only this module and `lz4_frames.py` compress. They import cramjam on first use: a broker that never compresses or decompresses a batch does
not load it. Decompression does not trust the size that the data says. gzip is decompressed in small steps. lz4 and zstd are decompressed
into a buffer of a small multiple of the input's size; if it is too small, the data is decompressed again into one four times as large, up
to the limit. The size in snappy data is compared with the limit, and with the most that its bytes can decompress to, before memory is
allocated.

Invariants: the output takes no more memory than the limit (twice that while a caller copies it); data that cannot be decompressed raises
`WireError`. Every client can read what is written here: snappy in the blocks of Java's SnappyOutputStream, lz4 as one frame of independent
blocks (Kafka's Java reader refuses linked ones). More is read: raw snappy, linked lz4 blocks, and several frames or gzip members one after
another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from ottla.base.errors import WireError
from ottla.wire import lz4_frames

Buffer = bytes | bytearray | memoryview

CODEC_NONE = 0
CODEC_GZIP = 1
CODEC_SNAPPY = 2
CODEC_LZ4 = 3
CODEC_ZSTD = 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_GZIP_WBITS = 31
_GZIP_LEVEL = 6
_GZIP_STEP_BYTES = 1 << 20
_GZIP_INPUT_STEP_BYTES = 1 << 13
_LZ4_LEVEL = 0
_ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_EXPANSION_MAX = 22
"""Maximum number of decompressed bytes per byte of snappy data: its densest element takes 3 bytes and copies 64."""

_FIRST_BUFFER_BYTES_MIN = 1 << 15
_FIRST_BUFFER_RATIO = 8
_BUFFER_GROWTH = 4
_BUFFER_FULL = "whole buffer"
"""A part of cramjam's error message for a full output buffer. A test checks it."""

_LZ4_HEADER_BYTES_MIN = 7
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_DICTIONARY = 0x01

_INT32 = Struct(">i")
_UINT32_LITTLE = Struct("<I")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Returns `data` compressed by `codec`. Without a level, gzip and zstd use Kafka's default level, and lz4 uses its fastest. Snappy has
    no levels.
    """
    if codec == CODEC_NONE:
        return bytes(data)
    if codec == CODEC_GZIP:
        return _gzip_compress(data, _GZIP_LEVEL if level is None else level)
    if codec == CODEC_SNAPPY:
        return _snappy_compress(data)
    if codec == CODEC_LZ4:
        return _lz4_compress(data, _LZ4_LEVEL if level is None else level)
    assert codec == CODEC_ZSTD, f"unknown codec {codec}"
    from cramjam import zstd

    return bytes(zstd.compress(data, _ZSTD_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, max_bytes: int) -> Buffer:
    """Returns `data` decompressed. Raises `WireError` for more than `max_bytes` (`UnpackedTooLarge`), an unknown codec, and data that is
    damaged or incomplete.
    """
    if codec == CODEC_NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    if codec == CODEC_GZIP:
        return _gzip_decompress(data, max_bytes)
    if codec == CODEC_SNAPPY:
        return _snappy_decompress(data, max_bytes)
    if codec == CODEC_LZ4:
        return _lz4_decompress(data, max_bytes)
    if codec == CODEC_ZSTD:
        from cramjam import zstd

        # The library itself refuses windows of more than 128 MiB, and its window takes no more memory than the output.
        return _decompress_growing(zstd.decompress_into, "zstd", data, max_bytes, _likely_bytes(data))
    raise WireError(f"unknown compression codec {codec}")


class UnpackedTooLarge(WireError):
    """The data decompresses to more bytes than the caller allows."""


def _too_large(max_bytes: int) -> WireError:
    return UnpackedTooLarge(f"a batch unpacks to more than {max_bytes} bytes")


def _gzip_compress(data: Buffer, level: int) -> bytes:
    import zlib

    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _lz4_compress(data: Buffer, level: int) -> bytes:
    if level == _LZ4_LEVEL:
        return lz4_frames.compress(data)
    from cramjam import lz4

    compressor = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _lz4_decompress(data: Buffer, max_bytes: int) -> Buffer:
    first_bytes = _lz4_first_bytes(data)
    found = lz4_frames.decompress(data, min(first_bytes, max_bytes))
    if found is not None:
        return found
    from cramjam import lz4

    return _decompress_growing(lz4.decompress_into, "lz4", data, max_bytes, first_bytes)


def _snappy_compress(data: Buffer) -> bytes:
    from cramjam import snappy

    parts: list[Buffer] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _gzip_decompress(data: Buffer, max_bytes: int) -> Buffer:
    """Decompresses gzip members one after another. The input is given in small steps, because zlib copies input that it has not consumed
    yet.
    """
    import zlib

    output = bytearray()
    view = memoryview(data)
    position, inflater = 0, zlib.decompressobj(_GZIP_WBITS)
    pending: Buffer = b""
    try:
        while True:
            if not pending:
                if position == len(view):
                    break
                pending = view[position : position + _GZIP_INPUT_STEP_BYTES]
                position += len(pending)
                if inflater.eof:
                    inflater = zlib.decompressobj(_GZIP_WBITS)
            output += inflater.decompress(pending, min(_GZIP_STEP_BYTES, max_bytes + 1 - len(output)))
            if len(output) > max_bytes:
                raise _too_large(max_bytes)
            pending = inflater.unconsumed_tail
            if inflater.eof and inflater.unused_data:
                pending = inflater.unused_data
                inflater = zlib.decompressobj(_GZIP_WBITS)
    except zlib.error as error:
        raise WireError(f"broken gzip data: {error}") from None
    if not inflater.eof:
        raise WireError("gzip data is cut off")
    return output


def _likely_bytes(data: Buffer) -> int:
    return max(_FIRST_BUFFER_BYTES_MIN, _FIRST_BUFFER_RATIO * len(data))


def _lz4_first_bytes(data: Buffer) -> int:
    """Returns the size in bytes of the first output buffer. It is the most that the frame's blocks can decompress to if that is less than
    the usual size, because a larger buffer takes time to fill with zeros.

    Data that is not a single whole frame gets the usual size.
    """
    room, end = 1, len(data)
    limit = _likely_bytes(data)
    if end < _LZ4_HEADER_BYTES_MIN:
        return limit
    flags, block_bytes = data[4], 1 << (8 + 2 * (data[5] >> 4 & 7))
    position = _LZ4_HEADER_BYTES_MIN + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    while position + 4 <= end and room < limit:
        size: int = _UINT32_LITTLE.unpack_from(data, position)[0] & 0x7FFFFFFF
        if size == 0:
            is_last = position + (8 if flags & _LZ4_CONTENT_CHECKSUM else 4) >= end
            return room if is_last else limit
        room += block_bytes
        position += 4 + size + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    return limit


def _decompress_growing(
    decompress_into: Callable[[Buffer, bytearray], int], name: str, data: Buffer, max_bytes: int, first_bytes: int
) -> Buffer:
    """Decompresses into a buffer whose size does not grow with what the data says. A buffer that was too small is freed before the next one
    is allocated.
    """
    from cramjam import DecompressionError

    size = min(first_bytes, max_bytes)
    while True:
        output = bytearray(size)
        try:
            del output[decompress_into(data, output) :]
            return output
        except DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise WireError(f"broken {name} data: {error}") from None
        if size >= max_bytes:
            raise _too_large(max_bytes)
        del output
        size = min(size * _BUFFER_GROWTH, max_bytes)


def _snappy_decompress(data: Buffer, max_bytes: int) -> Buffer:
    """Decompresses the blocks of Java's SnappyOutputStream, or else one raw block (librdkafka and others)."""
    from cramjam import DecompressionError, snappy

    view = memoryview(data)
    total = 0
    for block in _snappy_blocks(view):
        total += _snappy_size(block)
        if total > max_bytes:
            raise _too_large(max_bytes)
    output = bytearray(total)
    room = memoryview(output)
    start = 0
    try:
        for block in _snappy_blocks(view):
            start += snappy.decompress_raw_into(block, room[start:])
    except DecompressionError as error:
        raise WireError(f"broken snappy data: {error}") from None
    if start != total:
        raise WireError(f"snappy blocks say {total} bytes and have {start}")
    return output


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yields the blocks one at a time: a list of millions of tiny blocks would take forty times the memory of the input."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    position, end = len(_XERIAL_HEADER), len(view)
    if end < position:
        raise WireError("a snappy header is cut off")
    while position < end:
        if end - position < _INT32.size:
            raise WireError("the length of a snappy block is cut off")
        size: int = _INT32.unpack_from(view, position)[0]
        position += _INT32.size
        if not 0 < size <= end - position:
            raise WireError(f"a snappy block says {size} bytes, {end - position} are left")
        yield view[position : position + size]
        position += size


def _snappy_size(block: memoryview) -> int:
    """Returns the decompressed size that a raw block says. Raises `WireError` if its bytes cannot decompress to so much."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 127) << shift
        if byte < 128:
            if size > _SNAPPY_EXPANSION_MAX * len(block):
                raise WireError(f"a snappy block of {len(block)} bytes says it unpacks to {size}")
            return size
        shift += 7
    raise WireError("a snappy block without a size")
