"""Hashing many keys together gives the same hashes as hashing each alone."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla.arrow.murmur2 import hash_keys
from ottla.client import partition_for_key
from ottla.client.core.partitioner import murmur2

keys = st.lists(st.none() | st.binary(max_size=40), max_size=60)


@given(keys, st.integers(0, 3))
def test_hashes_are_those_of_single_keys(found: list[bytes | None], skipped: int) -> None:
    array = pa.array(found, pa.binary()).slice(skipped)
    assert hash_keys(array).tolist() == [murmur2(key or b"") for key in found[skipped:]]


def test_every_length_alone_and_among_others() -> None:
    choose = random.Random(7)
    found = [choose.randbytes(length) for length in range(300)]
    for key in found[:40]:
        assert hash_keys(pa.array([key] * 50)).tolist() == [murmur2(key)] * 50
    many = [key for key in found for _ in range(40)]
    choose.shuffle(many)
    assert hash_keys(pa.array(many)).tolist() == [murmur2(key) for key in many]
    assert int(hash_keys(pa.array([b"order 17"]))[0] & 0x7FFFFFFF) % 8 == partition_for_key(b"order 17", 8)


def test_a_very_long_key_among_short_ones() -> None:
    found = [b"short", bytes(range(256)) * 400, b"", b"four", *[b"x" * 9] * 100]
    assert hash_keys(pa.array(found)).tolist() == [murmur2(key) for key in found]
