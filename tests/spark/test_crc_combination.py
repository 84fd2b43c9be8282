"""The checksum of two pieces is that of the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.crc_combination import combine_crc32c
from ottla.wire.checksum import crc32c


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_pieces_have_the_checksum_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_a_piece_longer_than_any_power_of_the_polynomial_repeats() -> None:
    half = crc32c(bytes(1 << 20))
    length = 1 << 20
    while length < 1 << 33:
        half, length = combine_crc32c(half, half, length), length * 2
    assert combine_crc32c(half, crc32c(b"x"), 1) == crc32c(b"x", half)
    left = combine_crc32c(combine_crc32c(crc32c(b"x"), half, length), half, length)
    assert left == combine_crc32c(crc32c(b"x"), combine_crc32c(half, half, length), 2 * length), "however the pieces are put together"


def test_long_pieces_and_empty_ones() -> None:
    first, second = b"a", bytes(range(256)) * 40_000
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
    assert combine_crc32c(0, crc32c(second), len(second)) == crc32c(second)
    assert combine_crc32c(crc32c(second), 0, 0) == crc32c(second)
