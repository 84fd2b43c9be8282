"""The patterns with which records are skipped in chunks: which records a pattern matches. The matches affect only the speed of a search
(`test_record_times.py` tests its results)."""

from __future__ import annotations

from random import Random

import pytest

from ottla.wire.batch_header import RECORDS_AT
from ottla.wire.record_chunks import CHUNK_RECORDS, DELTA_MAX, chunk_matcher
from ottla.wire.records import Record, encode_batch


def records(deltas: list[int], sizes: list[int]) -> bytes:
    made = [Record(0, 1_000 + delta, None, b"v" * size) for delta, size in zip(deltas, sizes, strict=True)]
    return bytes(encode_batch(made)[RECORDS_AT:])


@pytest.mark.parametrize("sizes", [(0, 50), (50, 150), (150, 245)])
def test_small_records_of_mixed_lengths_match_up_to_their_end(sizes: tuple[int, int]) -> None:
    random = Random(1)
    for _ in range(20):
        data = records([0] * CHUNK_RECORDS, [random.randint(*sizes) for _ in range(CHUNK_RECORDS)])
        for around in (b"", b"\x80\x01"):
            found = chunk_matcher(0)(around + data + around, len(around))
            assert found is not None and found.end() == len(around) + len(data)
        assert chunk_matcher(0)(data[:-1], 0) is None


@pytest.mark.parametrize("last", [0, 1, 7, 8, 63, 64, -1])
def test_the_bound_on_deltas(last: int) -> None:
    for size in (20, 60, 100):
        data = records([0] * (CHUNK_RECORDS - 1) + [last], [size] * CHUNK_RECORDS)
        for bound in (0, 1, 7, 63):
            assert (chunk_matcher(bound)(data, 0) is not None) == (0 <= last <= bound)


@pytest.mark.parametrize("bound", range(DELTA_MAX + 1))
def test_no_bound_lets_a_larger_delta_pass(bound: int) -> None:
    """Some bounds share the pattern of a smaller bound, which is at most a third smaller."""
    zeros = [0] * (CHUNK_RECORDS - 1)
    assert chunk_matcher(bound)(records([*zeros, bound + 1], [20] * CHUNK_RECORDS), 0) is None
    assert chunk_matcher(bound)(records([*zeros, bound - bound // 3], [20] * CHUNK_RECORDS), 0) is not None
