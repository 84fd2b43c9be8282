"""Encoded rows are equal to the rows that the codec for single records decodes from them."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.arrow import encode
from ottla.arrow.encode import EncodedBatch, encode_rows
from ottla.arrow.errors import RecordTooLargeError, RowsError
from ottla.wire.compression import CODEC_NAMES
from ottla.wire.record_validation import UNBOUNDED, validate_section
from ottla.wire.records import Record, check_crc, read_batch_header, read_records, record_section
from tests.arrow.batches import NOW_MS, record_lists

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table_of(records: list[Record]) -> Any:
    """Returns an Arrow record batch with all columns; timestamps are in microseconds."""
    entries = [[{"key": name, "value": value} for name, value in record.headers] or None for record in records]
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(entries, HEADERS),
            "timestamp": pa.array([record.timestamp * 1000 + 999 for record in records], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


def read_back(batches: list[EncodedBatch]) -> list[Record]:
    """Returns the records of valid batches, with consecutive offsets, after the checks that a broker makes."""
    records: list[Record] = []
    for batch in batches:
        header = read_batch_header(batch.data)
        assert header.size_bytes == len(batch.data) and check_crc(batch.data, 0, len(batch.data))
        validate_section(record_section(batch.data, header), header, is_key_required=False, steps_max=UNBOUNDED)
        found = read_records(batch.data)
        assert len(found) == batch.count == header.record_count == header.last_offset_delta + 1
        assert header.max_timestamp == max(record.timestamp for record in found)
        records += [record._replace(offset=len(records) + index) for index, record in enumerate(found)]
    return records


@given(record_lists(min_size=0), st.sampled_from(CODEC_NAMES), st.sampled_from([100, 300, 1 << 20]), st.booleans())
def test_rows_come_back(records: list[Record], compression: str, batch_bytes: int, is_table: bool) -> None:
    rows = table_of(records)
    if is_table:
        rows = pa.Table.from_batches([rows.slice(0, 3), rows.slice(3)])
    encoded = encode_rows(rows, compression=compression, batch_bytes=batch_bytes, record_bytes_max=1 << 20, is_transactional=True)
    assert read_back(encoded) == records
    assert all(len(batch.data) <= batch_bytes or batch.count == 1 for batch in encoded)


@given(record_lists(), st.data())
def test_slices_come_back(records: list[Record], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(records)))
    count = data.draw(st.integers(0, len(records)))
    wanted = [record._replace(offset=index) for index, record in enumerate(records[start : start + count])]
    assert read_back(encode_rows(table_of(records).slice(start, count), is_transactional=False)) == wanted


def test_the_header_is_blank_where_the_driver_stamps_it() -> None:
    for is_transactional in (False, True):
        [batch] = encode_rows(pa.record_batch({"value": [b"a", b"b"]}), compression="none", is_transactional=is_transactional)
        header = read_batch_header(batch.data)
        assert (header.producer_id, header.producer_epoch, header.base_sequence, header.base_offset) == (-1, -1, -1, 0)
        assert (header.is_transactional, header.is_control, header.codec) == (is_transactional, False, 0)


@pytest.mark.parametrize("codec", range(5))
def test_the_codec_is_the_one_asked_for_unless_it_makes_more_of_it(codec: int) -> None:
    rows = pa.record_batch({"value": [b"a" * 100] * 100})
    [batch] = encode_rows(rows, compression=CODEC_NAMES[codec], is_transactional=False)
    assert read_batch_header(batch.data).codec == codec
    [tiny] = encode_rows(
        rows.slice(0, 1).set_column(0, "value", pa.array([b"xyz"])), compression=CODEC_NAMES[codec], is_transactional=False
    )
    assert read_batch_header(tiny.data).codec == 0


KINDS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()]


@pytest.mark.parametrize("kind", [*KINDS, *(pa.dictionary(pa.int32(), kind) for kind in KINDS[:4])])
def test_values_and_keys_of_any_kind(kind: Any) -> None:
    words = ["a", None, "", "long enough to stand outside of a view", "e"]
    rows = pa.record_batch({"value": pa.array(words, kind), "key": pa.array(words[::-1], kind)})
    wanted = [
        (None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in zip(words[::-1], words, strict=True)
    ]
    for start in range(5):
        found = read_back(encode_rows(rows.slice(start), is_transactional=False))
        assert [(record.key, record.value) for record in found] == wanted[start:]


@pytest.mark.parametrize("kind", [pa.null(), pa.string(), pa.binary()])
def test_columns_of_nulls(kind: Any) -> None:
    rows = pa.record_batch({"value": pa.nulls(70, kind), "key": pa.nulls(70, kind), "headers": pa.nulls(70, HEADERS)})
    assert {record[2:] for record in read_back(encode_rows(rows, is_transactional=False))} == {(None, None, ())}


@pytest.mark.parametrize("outer", ["list", "large_list", "map"])
@pytest.mark.parametrize("inner", [pa.string(), pa.large_string(), pa.binary(), pa.string_view()])
def test_headers_of_any_kind(outer: str, inner: Any) -> None:
    entry = pa.struct([("value", pa.binary()), ("key", inner)])
    kind = {"list": pa.list_(entry), "large_list": pa.large_list(entry), "map": pa.map_(inner, pa.binary())}[outer]
    found = [[("one", b"1"), ("two", None)], None, [], [("three", b"")]]
    entries = [None if row is None else [pair if outer == "map" else {"key": pair[0], "value": pair[1]} for pair in row] for row in found]
    rows = pa.record_batch({"value": [b"v"] * 4, "headers": pa.array(entries, kind)})
    for start in range(4):
        back = read_back(encode_rows(rows.slice(start), is_transactional=False))
        assert [record.headers for record in back] == [tuple(row or ()) for row in found[start:]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit(unit: str) -> None:
    ticks = {"s": 10**-3, "ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    wanted = [0, 1_600_000_000_000, -5_000]
    times = pa.array([int(at * ticks) for at in wanted] + [None], pa.timestamp(unit))
    before = time.time_ns() // 1_000_000
    found = read_back(encode_rows(pa.record_batch({"value": [b"v"] * 4, "timestamp": times}), is_transactional=False))
    assert [record.timestamp for record in found[:3]] == wanted
    assert before <= found[3].timestamp <= time.time_ns() // 1_000_000


def test_rows_without_timestamps_have_the_time_of_the_call() -> None:
    before = time.time_ns() // 1_000_000
    found = read_back(encode_rows(pa.record_batch({"value": [b"v"] * 300}), is_transactional=False))
    assert len({record.timestamp for record in found}) == 1
    assert before <= found[0].timestamp <= time.time_ns() // 1_000_000


def test_batches_are_filled_and_never_too_large() -> None:
    rows = pa.record_batch({"value": [bytes(at % 211) for at in range(20_000)], "key": [b"%d" % at for at in range(20_000)]})
    encoded = encode_rows(rows, compression="none", batch_bytes=50_000, is_transactional=True)
    assert [record.value for record in read_back(encoded)] == rows.column("value").to_pylist()
    assert all(49_000 < len(batch.data) <= 50_000 for batch in encoded[:-1])


def test_rows_too_large_for_one_array_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_ROWS_BYTES_MAX", 1000)
    rows = pa.record_batch({"value": [b"%d" % at * 30 for at in range(100)]})
    encoded = encode_rows(rows, is_transactional=False)
    assert [record.value for record in read_back(encoded)] == rows.column("value").to_pylist()
    assert len(encoded) > 1


def test_a_large_record_travels_alone_and_a_larger_one_is_refused() -> None:
    rows = pa.record_batch({"value": [b"a", b"b" * 2000, b"c"]})
    encoded = encode_rows(rows, compression="none", batch_bytes=500, record_bytes_max=3000, is_transactional=True)
    assert [batch.count for batch in encoded] == [1, 1, 1]
    assert 2000 < len(encoded[1].data) < 2100
    with pytest.raises(RecordTooLargeError, match=r"a record of 20.. bytes is larger than 439, the maximum; make values smaller"):
        encode_rows(rows, batch_bytes=500, is_transactional=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [b"k"]}, "the rows have no column 'value', only key"),
        ({"value": [17]}, "column 'value' is of type int64; it has to be a string or binary"),
        ({"value": [b"v"], "key": [1.5]}, "column 'key' is of type double; it has to be a string or binary"),
        ({"value": [b"v"], "timestamp": [NOW_MS]}, "column 'timestamp' is of type int64; it has to be a timestamp"),
        ({"value": [b"v"], "headers": ["a"]}, "column 'headers' is of type string; it has to be an array of structs"),
        ({"value": [b"v"], "headers": [[{"key": "a"}]]}, "column 'headers' is of type .*; it has to be an array of structs"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "column 'headers' has an entry without a key"),
        ({"value": [b"v"], "headers": [[{"key": 5, "value": b""}]]}, "column 'headers.key' is of type int64"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RowsError, match=message):
        encode_rows(pa.record_batch(columns), is_transactional=True)


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(RowsError, match="compression 'brotli' is none of none, gzip, snappy, lz4, zstd"):
        encode_rows(pa.record_batch({"value": [b"v"]}), compression="brotli", is_transactional=True)
