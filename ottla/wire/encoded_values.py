"""Caches of encoded values and of `pack` functions: dictionaries that compute a missing value, all of limited size.

Nearly every message has names of topics, groups or hosts, and small counts, so their bytes are cached. A row is a sequence of fixed-width
values, with arrays of such values among them. One `struct.Struct` packs it, and is cached by the lengths of the arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.wire.primitives import encode_string, uvarint

CACHED_STRINGS_MAX = 2048
CACHED_STRING_LENGTH_MAX = 128
CACHED_COUNTS_MAX = 1024
CACHED_SHAPES_MAX = 512


class CompactStrings(dict[str | None, bytes]):
    """Encoded strings by value: the length plus one as a varint, then UTF-8. Long strings are not kept."""

    def __missing__(self, text: str | None) -> bytes:
        assert text is not None, "a string that may not be null is null"
        data = encode_string(text)
        encoded = uvarint(len(data) + 1) + data
        _remember(self, text, encoded, len(text))
        return encoded


class ClassicStrings(dict[str | None, bytes]):
    """Encoded strings by value: the length as int16, then UTF-8. Long strings are not kept."""

    def __missing__(self, text: str | None) -> bytes:
        assert text is not None, "a string that may not be null is null"
        data = encode_string(text)
        encoded = len(data).to_bytes(2, "big") + data
        _remember(self, text, encoded, len(text))
        return encoded


def _remember(strings: dict[str | None, bytes], text: str, encoded: bytes, length: int) -> None:
    if length <= CACHED_STRING_LENGTH_MAX:
        if len(strings) >= CACHED_STRINGS_MAX:
            null = strings.get(None)
            strings.clear()
            if null is not None:
                strings[None] = null
        strings[text] = encoded


class CompactCounts(dict[int, bytes]):
    """The varint of a length plus one, by length. The length of a null is -1. Large lengths are not kept."""

    def __missing__(self, count: int) -> bytes:
        encoded = uvarint(count + 1)
        if count < CACHED_COUNTS_MAX:
            self[count] = encoded
        return encoded


class Shapes(dict[Any, Callable[..., bytes]]):
    """The `pack` functions of a row with arrays, by the arrays' lengths (a number for one array, else a tuple). A function for a compact
    array of 127 elements or more is not kept.

    `row` has a `struct` letter for each fixed-width value, and a one-tuple (letter,) for each array. The arguments for an array are its
    count and then its elements.
    """

    def __init__(self, row: list[str | tuple[str]], *, is_compact: bool) -> None:
        super().__init__()
        self.row = row
        self.is_compact = is_compact

    def __missing__(self, shape: int | tuple[int, ...]) -> Callable[..., bytes]:
        lengths = iter((shape,) if isinstance(shape, int) else shape)
        letters: list[str] = []
        wide: list[int] = []  # the indexes of arguments that are counts of more than one byte
        arguments = 0
        for item in self.row:
            if isinstance(item, str):
                letters.append(item)
                arguments += item != "x"
                continue
            length = next(lengths)
            if not self.is_compact:
                letters.append("i")
            elif length < 127:
                letters.append("B")
            else:
                letters.append(f"{len(uvarint(length + 1))}s")
                wide.append(arguments)
            letters.append("16s" * length if item[0] == "16s" else f"{length}{item[0]}")
            arguments += 1 + length
        pack = struct.Struct(">" + "".join(letters)).pack
        if wide:
            return _pack_with_wide_counts(pack, wide)
        if len(self) >= CACHED_SHAPES_MAX:
            self.clear()
        self[shape] = pack
        return pack


def _pack_with_wide_counts(pack: Callable[..., bytes], wide: list[int]) -> Callable[..., bytes]:
    def pack_wide(*values: Any) -> bytes:
        row = list(values)
        for place in wide:
            row[place] = uvarint(row[place])
        return pack(*row)

    return pack_wide


COMPACT_STRINGS = CompactStrings()
COMPACT_NULLABLE_STRINGS = CompactStrings({None: b"\0"})
CLASSIC_STRINGS = ClassicStrings()
CLASSIC_NULLABLE_STRINGS = ClassicStrings({None: b"\xff\xff"})
COMPACT_COUNTS = CompactCounts({-1: b"\0"})
