"""Writes and reads lz4 frames of independent blocks, by the library's functions for single blocks.

Its functions for whole frames take blocks of 64 KiB, checksum each and go through buffers of their own. One block function a quarter of a
MiB is up to three times as fast to write, most of all for data that hardly shrinks, and two to four times as fast to read.

Written: magic, flags (version 1, independent blocks, no checksums), block size, the header's checksum, then blocks, each behind its size,
then a size of 0. A block that does not shrink is stored as it is. Small data is one block of at most 64 KiB, so that readers which
allocate a whole block at once (Java's) do not take more.
Read here: one frame of that kind, by any writer. Everything else, also what is damaged, is for `compression.decompress`.
"""

from __future__ import annotations

from struct import Struct

from ottla.base.errors import WireError

Buffer = bytes | bytearray | memoryview

MAGIC = b"\x04\x22\x4d\x18"
HEADERS = {
    64 << 10: MAGIC + b"\x60\x40\x82",
    256 << 10: MAGIC + b"\x60\x50\xfb",
    1 << 20: MAGIC + b"\x60\x60\x51",
    4 << 20: MAGIC + b"\x60\x70\x73",
}
"""The whole header by the most bytes of a block. The first byte behind the magic number, 0x60, says: version 1, independent blocks, no
checksums, no size of the content, no dictionary; the last is a checksum of the two before it (xxHash-32)."""

SMALL_BLOCK_BYTES = 64 << 10
BLOCK_BYTES = 256 << 10
_BLOCK_BYTES_OF = {header: size for size, header in HEADERS.items()}
_HEADER_BYTES = 7
_STORED = 0x8000_0000
_PACKED_BYTES_MIN = 4
"""The library's block function takes no fewer, and no encoder packs so few."""
_BLOCKS_MIN = 16
_BYTES_A_BLOCK_MIN = 1024
"""A frame of more blocks than these, and smaller ones than this on average, is not worth a loop over them."""

_SIZE = Struct("<I")


def compress(data: Buffer) -> bytes:
    """`data` as one frame."""
    from cramjam import lz4

    view = memoryview(data)
    block_bytes = SMALL_BLOCK_BYTES if len(view) <= SMALL_BLOCK_BYTES else BLOCK_BYTES
    pieces: list[Buffer] = [HEADERS[block_bytes]]
    for start in range(0, len(view), block_bytes):
        block = view[start : start + block_bytes]
        packed = memoryview(lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            pieces += (_SIZE.pack(len(packed)), packed)
        else:
            pieces += (_SIZE.pack(len(block) | _STORED), block)
    pieces.append(_SIZE.pack(0))
    return b"".join(pieces)


def decompress(data: Buffer, room_bytes_max: int) -> bytearray | None:
    """Returns the decompressed bytes of a frame. None if it is of another kind, is damaged outside its blocks, or may exceed
    `room_bytes_max`.

    `WireError` when a block is damaged.
    """
    view = memoryview(data)
    block_bytes = _BLOCK_BYTES_OF.get(bytes(view[:_HEADER_BYTES]), 0)
    blocks = _blocks(view, block_bytes) if block_bytes else None
    if blocks is None or len(blocks) * block_bytes > room_bytes_max:
        return None
    from cramjam import DecompressionError, lz4

    output = bytearray(len(blocks) * block_bytes)
    room, filled = memoryview(output), 0
    try:
        for start, stop, is_stored in blocks:
            if is_stored:
                room[filled : filled + stop - start] = view[start:stop]
                filled += stop - start
            else:
                filled += lz4.decompress_block_into(view[start:stop], room[filled : filled + block_bytes])
    except DecompressionError as error:
        raise WireError(f"broken lz4 data: {error}") from None
    room.release()
    del output[filled:]
    return output


def _blocks(view: memoryview, block_bytes: int) -> list[tuple[int, int, bool]] | None:
    """Start, end and kind of each block of a frame that ends where the data does."""
    blocks: list[tuple[int, int, bool]] = []
    position, end = _HEADER_BYTES, len(view)
    while position + _SIZE.size <= end:
        size: int = _SIZE.unpack_from(view, position)[0]
        position += _SIZE.size
        if size == 0:
            return blocks if position == end and len(blocks) <= _BLOCKS_MIN + end // _BYTES_A_BLOCK_MIN else None
        is_stored = size >= _STORED
        size &= ~_STORED
        if size > min(block_bytes, end - position) or size < (1 if is_stored else _PACKED_BYTES_MIN):
            return None
        blocks.append((position, position + size, is_stored))
        position += size
    return None
