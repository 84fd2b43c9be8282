"""Reading and writing the varints of many records at once gives the same as one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.arrow.varints import Varints, join_varints, read_varints, unzigzag, varint_sizes, zigzag
from ottla.client import WireError
from ottla.wire.record_validation import read_zigzag
from ottla.wire.records import encode_varint

EDGES = [sign * (1 << bits) + off for bits in range(63) for sign in (-1, 1) for off in (-1, 0)]
numbers = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(EDGES) | st.integers(-70, 70), max_size=30)


def column(values: list[int]) -> Any:
    return np.array(values, np.int64)


@given(numbers, st.binary(max_size=3))
def test_numbers_come_back(values: list[int], between: bytes) -> None:
    encoded = [encode_varint(value) for value in values]
    data = np.frombuffer(b"".join(each + between for each in encoded), np.uint8)
    at = column([sum(len(each) + len(between) for each in encoded[:index]) for index in range(len(values))])
    found, ends = read_varints(data, at, 64)
    assert unzigzag(found).tolist() == values
    assert (ends - at).tolist() == [len(each) for each in encoded]


@given(numbers, numbers, st.integers(0, 200))
def test_fields_stand_behind_one_another(first: list[int], second: list[int], constant: int) -> None:
    count = min(len(first), len(second))
    fields = [Varints.of(column(first[:count])), Varints(constant & 127, 1), Varints.of(column(second[:count]))]
    wanted = [encode_varint(a) + bytes([constant & 127]) + encode_varint(b) for a, b in zip(first, second, strict=False)]
    assert join_varints(fields, count).to_pylist() == wanted


def test_sizes_change_where_they_should() -> None:
    assert varint_sizes(zigzag(column(EDGES))).tolist() == [len(encode_varint(value)) for value in EDGES]


@given(st.binary(min_size=1, max_size=12), st.sampled_from([32, 64]))
def test_what_is_refused_alone_is_refused_together(data: bytes, bits: int) -> None:
    try:
        number, end = read_zigzag(data, 0, bits)
    except (WireError, IndexError):
        with pytest.raises((WireError, IndexError)):
            read_varints(np.frombuffer(data, np.uint8), column([0]), bits)
    else:
        found, ends = read_varints(np.frombuffer(data, np.uint8), column([0]), bits)
        assert (found.tolist(), ends.tolist()) == ([number], [end])
