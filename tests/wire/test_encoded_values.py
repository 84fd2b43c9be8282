"""The cache of encoded values never changes an encoded byte, and its size is bounded."""

from __future__ import annotations

import struct

from ottla.wire import encoded_values
from ottla.wire.encoded_values import ClassicStrings, CompactCounts, CompactStrings, Shapes
from ottla.wire.primitives import uvarint


def test_shapes_are_bounded() -> None:
    shapes = Shapes(["h", ("i",), "x", ("16s",)], is_compact=True)
    for length in range(3 * encoded_values.CACHED_SHAPES_MAX):
        assert shapes[length, 1](5, length + 1, *range(length), 2, b"u" * 16) == (
            struct.pack(">h", 5) + uvarint(length + 1) + struct.pack(f">{length}i", *range(length)) + b"\0\x02" + b"u" * 16
        )
    assert len(shapes) <= encoded_values.CACHED_SHAPES_MAX


def test_cached_strings_are_bounded_and_keep_their_null() -> None:
    compact, classic = CompactStrings({None: b"\0"}), ClassicStrings({None: b"\xff\xff"})
    for number in range(encoded_values.CACHED_STRINGS_MAX + 10):
        text = f"topic-{number}"
        assert compact[text] == compact[text] == bytes([len(text) + 1]) + text.encode()
        assert classic[text] == classic[text] == struct.pack(">h", len(text)) + text.encode()
    assert len(compact) < encoded_values.CACHED_STRINGS_MAX
    assert (compact[None], classic[None]) == (b"\0", b"\xff\xff")
    long = "x" * (encoded_values.CACHED_STRING_LENGTH_MAX + 1)
    assert compact[long] == uvarint(len(long) + 1) + long.encode()
    assert long not in compact


def test_cached_counts_are_bounded() -> None:
    counts = CompactCounts()
    for count in (0, 126, 127, 1023, 1024, 5_000_000):
        assert counts[count] == uvarint(count + 1)
    assert list(counts) == [0, 126, 127, 1023]
