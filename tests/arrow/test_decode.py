"""Decoding to Arrow gives the same records as the codec for single records, for all kinds of batches."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.arrow import decode
from ottla.arrow.decode import arrow_schema, decode_batches
from ottla.arrow.errors import DamagedBatchError
from ottla.wire.records import RECORDS_AT, Record, WireError, encode_batch, iter_records, read_batch_header, rewrite_batch, stamp_crc
from tests.arrow.batches import NOW_MS, PARTITION, as_row, fetch, logs, record_lists

EVERYTHING = 1 << 62


def rows_of(batches: Any, start: int = 0, end: int = EVERYTHING, *, include_headers: bool = True) -> list[dict[str, Any]]:
    """Returns the decoded rows, with timestamps in microseconds."""
    found = list(decode_batches(fetch(batches, start), end, include_headers=include_headers))
    assert all(batch.num_rows for batch in found)
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(include_headers=include_headers)
    table = pa.Table.from_batches(found, arrow_schema(include_headers=include_headers))
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()  # type: ignore[no-any-return]


def expected(batches: Any, start: int = 0, end: int = EVERYTHING, *, include_headers: bool = True) -> list[dict[str, Any]]:
    return [
        as_row(record, timestamp_type=read_batch_header(batch).timestamp_type, include_headers=include_headers)
        for batch in batches
        for record in iter_records(batch)
        if start <= record.offset < end
    ]


@given(logs(), st.booleans())
def test_everything_comes_out_as_the_other_codec_reads_it(batches: list[bytearray], include_headers: bool) -> None:
    assert rows_of(batches, include_headers=include_headers) == expected(batches, include_headers=include_headers)


@given(logs(), st.integers(-3, 40), st.integers(-3, 40))
def test_only_offsets_of_the_range_come_out(batches: list[bytearray], before: int, behind: int) -> None:
    base = read_batch_header(batches[0]).base_offset
    start, end = base + before, base + behind
    assert rows_of(batches, start, end) == expected(batches, start, end)


@given(record_lists(), st.data())
def test_damage_is_found_where_the_other_codec_finds_it(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(RECORDS_AT, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        wanted = expected([batch], -EVERYTHING)
    except WireError:
        with pytest.raises(DamagedBatchError):
            rows_of([batch], -EVERYTHING)
    else:
        assert rows_of([batch], -EVERYTHING) == wanted


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_cut_off_or_garbled_is_named(codec: int) -> None:
    good = encode_batch([Record(0, NOW_MS, None, b"first")], base_offset=70)
    bad = encode_batch([Record(0, NOW_MS, b"k", b"x" * 300)], base_offset=71, codec=codec)
    for keep in (RECORDS_AT, RECORDS_AT + 1, len(bad) - 1):
        cut = bad[:keep]
        struct.pack_into(">i", cut, 8, keep - 12)
        with pytest.raises(DamagedBatchError, match="the batch at offset 71 of orders-3 is damaged: "):
            rows_of([good, cut])


@pytest.mark.parametrize("count", [-1, 0x7FFFFFFF, 1, 3])
def test_a_wrong_count_is_damage(count: int) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"a"), Record(1, NOW_MS, None, b"b")])
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(DamagedBatchError):
        rows_of([batch, encode_batch([Record(0, NOW_MS, None, b"c")], base_offset=2)])


def test_a_record_of_one_batch_does_not_reach_into_the_next() -> None:
    first = encode_batch([Record(0, NOW_MS, None, b"a" * 10)])
    first[RECORDS_AT] += 2
    with pytest.raises(DamagedBatchError, match="offset 0 of"):
        rows_of([first, encode_batch([Record(0, NOW_MS, None, b"b")], base_offset=1)])


SIZES = [*[10] * 300, *[200] * 700, *[at % 97 for at in range(400)], *[9000] * 20, *[60] * 30, *[at // 9 for at in range(900)], *[1] * 5000]


def test_runs_of_records_of_one_size() -> None:
    records = [Record(at, NOW_MS + at, None, bytes([at & 255]) * size) for at, size in enumerate(SIZES)]
    for part in (records, records[40:], records[-300:]):
        batches = [encode_batch(part), encode_batch(part[:3], base_offset=len(part))]
        assert rows_of(batches) == expected(batches)


@given(st.integers(1, 400), st.integers(0, 80), st.data())
def test_damage_within_a_run_is_found(count: int, size: int, data: st.DataObject) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, bytes(size))] * count)
    at = data.draw(st.integers(RECORDS_AT, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    try:
        wanted = expected([batch], -EVERYTHING)
    except WireError:
        with pytest.raises(DamagedBatchError):
            rows_of([batch], -EVERYTHING)
    else:
        assert rows_of([batch], -EVERYTHING) == wanted


def test_nothing_comes_out_of_nothing() -> None:
    assert rows_of([]) == []
    emptied = rewrite_batch(read_batch_header(encode_batch([Record(0, NOW_MS, None, b"a")])), [])
    assert rows_of([emptied]) == []


def test_many_records_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_ROWS_MAX", 1000)
    monkeypatch.setattr(decode, "_GROUP_BYTES", 50_000)
    batches = [
        encode_batch([Record(0, NOW_MS + i, b"%d" % i, bytes(i % 90)) for i in range(1500)], base_offset=at * 1500) for at in range(6)
    ]
    assert rows_of(batches) == expected(batches)
    sizes = [batch.num_rows for batch in decode_batches(fetch(batches), EVERYTHING)]
    assert sum(sizes) == 9000
    assert max(sizes) <= 1000


@pytest.mark.parametrize("timestamp", [(1 << 63) - 1, -(1 << 63), 1 << 54, -(1 << 54), (1 << 63) // 1000 + 1])
def test_a_timestamp_beyond_microseconds_becomes_the_nearest(timestamp: int) -> None:
    limit = ((1 << 63) - 1) // 1000
    nearest = max(-limit, min(limit, timestamp)) * 1000
    batches = [encode_batch([Record(0, at, None, b"a")], base_offset=offset) for offset, at in enumerate([NOW_MS, timestamp])]
    assert [row["timestamp"] for row in rows_of(batches)] == [NOW_MS * 1000, nearest]
    base = -(1 << 54) if timestamp > 0 else 1 << 54
    if abs(timestamp) > 1 << 54 and abs(timestamp - base) < 1 << 63:
        batch = encode_batch([Record(0, base, None, b"a"), Record(1, timestamp, None, b"b")])
        assert [row["timestamp"] for row in rows_of([batch])][1] == nearest


def test_a_record_with_very_many_headers() -> None:
    entries = tuple((f"name {at}", None if at % 3 else b"%d" % at) for at in range(5000))
    records = [Record(at, NOW_MS, None, b"v", entries[: at % 7]) for at in range(100)] + [Record(100, NOW_MS, None, None, entries)]
    batch = encode_batch(records)
    assert rows_of([batch]) == expected([batch])


def test_names_of_headers_that_are_no_utf8_are_mended() -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"v", (("bad \udcff name", b"1"),))])
    assert rows_of([batch])[0]["headers"] == [{"key": "bad \ufffd name", "value": b"1"}]


def test_headers_that_are_not_asked_for_are_not_read() -> None:
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v", (("name", b"1"),))])
    batch[-1] ^= 0xFF
    stamp_crc(batch, 0, len(batch))
    assert rows_of([batch], include_headers=False)[0]["value"] == b"v"
    assert PARTITION.topic == rows_of([batch], include_headers=False)[0]["topic"]
