"""Varints: bytes worked out by hand, round trips at every width, and the refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, WireError
from ottla.wire.primitives import (
    encode_string,
    read_skipped_tags,
    read_uvarint,
    read_uvarlong,
    read_varint,
    read_varlong,
    uvarint,
    varint,
    varlong,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

EDGES = [n for bits in (0, 7, 14, 21, 28, 35, 42, 49, 56, 63) for n in (2**bits - 1, 2**bits)]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_by_hand(value: int, encoded: str) -> None:
    assert uvarint(value) == bytes.fromhex(encoded)
    assert read_uvarint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_by_hand(value: int, encoded: str) -> None:
    assert varint(value) == varlong(value) == bytes.fromhex(encoded)
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_varlong_reaches_both_ends_of_64_bits() -> None:
    assert varlong(-(2**63)) == b"\xff" * 9 + b"\x01"
    assert varlong(2**63 - 1) == b"\xfe" + b"\xff" * 8 + b"\x01"


@given(INT32)
def test_varints_of_32_bits_survive(value: int) -> None:
    encoded = varint(value)
    assert read_varint(b"\0" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(INT64)
def test_varlongs_of_64_bits_survive(value: int) -> None:
    encoded = varlong(value)
    assert read_varlong(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("value", EDGES)
def test_every_length_of_an_unsigned_varint_survives(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarlong(encoded, 0) == (value, len(encoded))
    if value < 2**32:
        assert read_uvarint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("read", [read_uvarint, read_varint])
@pytest.mark.parametrize("encoded", ["", "80", "ffffff", "8080808080", "ffffffff10", "ffffffffff01", "808080808000"])
def test_a_varint_that_is_short_or_long_is_refused(read: Callable[[bytes, int], tuple[int, int]], encoded: str) -> None:
    with pytest.raises(WireError):
        read(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("read", [read_uvarlong, read_varlong])
@pytest.mark.parametrize("encoded", ["", "80", "ff" * 9, "ff" * 9 + "02", "80" * 10 + "00"])
def test_a_varlong_that_is_short_or_long_is_refused(read: Callable[[bytes, int], tuple[int, int]], encoded: str) -> None:
    with pytest.raises(WireError):
        read(bytes.fromhex(encoded), 0)


def test_a_tag_section_is_skipped_to_its_end() -> None:
    section = bytes.fromhex("02 00 01 aa 05 03 bbbbbb")
    assert read_skipped_tags(b"\xff" + section + b"\xff", 1) == 1 + len(section)
    assert read_skipped_tags(b"\0", 0) == 1


@pytest.mark.parametrize("section", ["01", "0100", "010002aa", "02 0000 0000", "02 0500 0400", "ffffffff0f", "0180", "01 00 ffffffff0f"])
def test_a_broken_tag_section_is_refused(section: str) -> None:
    with pytest.raises(WireError):
        read_skipped_tags(bytes.fromhex(section), 0)


def test_strings_longer_than_the_protocol_allows_are_not_written() -> None:
    assert encode_string("ä" * 16383) == ("ä" * 16383).encode()
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        encode_string("ä" * 16384)
