"""Reads and writes integers of variable length, and lengths.

An unsigned varint has seven bits per byte, the lowest first; the top bit is set in all bytes but the last. A signed number is first
zigzag-encoded (0, -1, 1, -2 ... become 0, 1, 2, 3 ...). Readers take (buffer, offset) and return (value, offset after it). They raise
`WireError` for a varint that is too long or incomplete, except that `read_long_*` raise IndexError for an incomplete one.

The compiled codec (`decoding.py`, `encoding.py`) inlines the one-byte case and calls `read_long_*` for the rest.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, WireError

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX = 0x7FFF  # Kafka refuses longer strings, in classic and in compact form

_SINGLE_BYTES = [bytes([value]) for value in range(128)]


def read_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most 32 bits."""
    try:
        value = buffer[offset]
        if value < 128:
            return value, offset + 1
        return read_long_uvarint(buffer, offset)
    except IndexError:
        raise WireError("a varint is cut short") from None


def read_long_uvarint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads an unsigned varint of two to five bytes. Raises IndexError if it is incomplete (the caller turns it into `WireError`), and
    `WireError` for more than 32 bits.
    """
    second = buffer[offset + 1]
    if second < 128:
        return buffer[offset] & 127 | second << 7, offset + 2
    third = buffer[offset + 2]
    low = buffer[offset] & 127 | (second & 127) << 7
    if third < 128:
        return low | third << 14, offset + 3
    fourth = buffer[offset + 3]
    low |= (third & 127) << 14
    if fourth < 128:
        return low | fourth << 21, offset + 4
    fifth = buffer[offset + 4]
    if fifth > 15:  # more than 32 bits, or a sixth byte
        raise WireError("a varint has more than 32 bits")
    return low | (fourth & 127) << 21 | fifth << 28, offset + 5


def read_long_string_length(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads the length plus one of a compact string, as `read_long_uvarint` does. Raises `WireError` for more than `STRING_BYTES_MAX`
    bytes.
    """
    value, offset = read_long_uvarint(buffer, offset)
    if value > STRING_BYTES_MAX + 1:
        raise WireError(f"a string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, offset


def read_uvarlong(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most 64 bits."""
    value = 0
    shift = 0
    try:
        while True:
            byte = buffer[offset]
            offset += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise WireError("a varlong has more than ten bytes")
    except IndexError:
        raise WireError("a varlong is cut short") from None
    if value >> 64:
        raise WireError("a varlong has more than 64 bits")
    return value, offset


def read_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads a signed varint of at most 32 bits."""
    value, offset = read_uvarint(buffer, offset)
    return value >> 1 ^ -(value & 1), offset


def read_varlong(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads a signed varint of at most 64 bits."""
    value, offset = read_uvarlong(buffer, offset)
    return value >> 1 ^ -(value & 1), offset


def uvarint(value: int) -> bytes:
    """Returns the bytes of a non-negative number as an unsigned varint (or varlong)."""
    if value < 128:
        return _SINGLE_BYTES[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Returns the bytes of a number of at most 32 bits as a signed varint."""
    return uvarint(value << 1 ^ value >> 31)


def varlong(value: int) -> bytes:
    """Returns the bytes of a number of at most 64 bits as a signed varint."""
    return uvarint(value << 1 ^ value >> 63)


TAGS_MAX = 1000
"""Maximum number of tags in one section. No version of any message has ten."""


def read_skipped_tags(buffer: Buffer, offset: int) -> int:
    """Skips the tag section at `offset`, whose tags are all unknown. Returns the offset after it."""
    end = len(buffer)
    count, offset = read_uvarint(buffer, offset)
    if count > TAGS_MAX:
        raise WireError(f"a section of {count} tags")
    last = -1
    while count:
        count -= 1
        tag, offset = read_uvarint(buffer, offset)
        size, offset = read_uvarint(buffer, offset)
        check_tag(tag, last, size, end - offset)
        last = tag
        offset += size
    return offset


def read_long_tag_count(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Reads a count of tags of two bytes or more, as `read_long_uvarint` does. Raises `WireError` for more than `TAGS_MAX`."""
    count, offset = read_long_uvarint(buffer, offset)
    if count > TAGS_MAX:
        raise WireError(f"a section of {count} tags")
    return count, offset


def check_tag(tag: int, last: int, size: int, remaining: int) -> None:
    """Raises `WireError` if a tag is not larger than the one before it, or is longer than the rest of the frame."""
    if tag <= last:
        raise WireError(f"tag {tag} stands after tag {last}")
    if size > remaining:
        raise WireError(f"tag {tag} claims {size} bytes, the frame has {remaining} more")


def encode_string(text: str) -> bytes:
    """Returns `text` as UTF-8. Raises ApiError(INVALID_REQUEST) for more than `STRING_BYTES_MAX` bytes."""
    assert isinstance(text, str), f"a string may not be {text!r}"
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a string of {len(data)} bytes is longer than {STRING_BYTES_MAX}")
    return data
