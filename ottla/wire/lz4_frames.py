"""Writes and reads lz4 frames of independent blocks, with the library's functions for single blocks.

The library's functions for whole frames use blocks of 64 KiB, compute a checksum of each, and copy through buffers of their own. With one
call per block of 256 KiB, this module writes up to three times as fast, most of all data that hardly shrinks, and reads two to four times
as fast.

A written frame has a header (`HEADERS`), the blocks, each after its size, and a size of 0. A block that does not shrink is stored
uncompressed. Data of up to 64 KiB is written with that block size, because some readers (Java's) allocate a whole block at once.
`decompress` reads one frame of this kind from any writer. `compression.decompress` reads all others.
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
"""The complete header by the largest size of a block. The byte after the magic number, 0x60, means: version 1, independent blocks, no
checksums, no size of the content, no dictionary. The next byte is the block size, the last one a checksum of these two (xxHash-32).
"""

SMALL_BLOCK_BYTES = 64 << 10
BLOCK_BYTES = 256 << 10
_BLOCK_BYTES_OF = {header: size for size, header in HEADERS.items()}
_HEADER_BYTES = 7
_STORED = 0x8000_0000
_PACKED_BYTES_MIN = 4
"""The library's block function refuses fewer bytes, and no encoder writes fewer."""
_BLOCKS_MIN = 16
_BYTES_A_BLOCK_MIN = 1024
"""A frame may have `_BLOCKS_MIN` blocks, and one more for each `_BYTES_A_BLOCK_MIN` bytes. A loop over more and smaller blocks would be
slow.
"""

_SIZE = Struct("<I")


def compress(data: Buffer) -> bytes:
    """Returns `data` as one frame."""
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


def decompress(data: Buffer, bytes_max: int) -> bytearray | None:
    """Returns the decompressed bytes of a frame. Returns None if the frame is of another kind, is damaged outside its blocks, or could
    decompress to more than `bytes_max`.

    Raises `WireError` if a block is damaged.
    """
    view = memoryview(data)
    block_bytes = _BLOCK_BYTES_OF.get(bytes(view[:_HEADER_BYTES]), 0)
    blocks = _blocks(view, block_bytes) if block_bytes else None
    if blocks is None or len(blocks) * block_bytes > bytes_max:
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
    """Returns (start, end, is stored uncompressed) of each block. Returns None if the frame does not end where the data ends, a block's
    size is impossible, or there are too many small blocks.
    """
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
