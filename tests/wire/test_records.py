"""Batches of records: stock clients read ours, we read theirs, and broken bytes raise only `WireError`."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.wire.batch_header import set_max_timestamp
from ottla.wire.records import (
    BATCH_OVERHEAD,
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NAMES,
    CODEC_NONE,
    CODEC_ZSTD,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    HEADER,
    LOG_APPEND_TIME,
    RECORDS_AT,
    BatchHeader,
    Buffer,
    ControlRecord,
    Record,
    check_crc,
    encode_batch,
    encode_control_batch,
    encode_varint,
    iter_records,
    read_batch_header,
    read_control_record,
    read_records,
    recompress_section,
    record_section,
    rewrite_batch,
    stamp_crc,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka.record import default_records as kafka_python

NOW = 1_700_000_000_000
CODECS = range(5)
KAFKA_PYTHON_CODECS = (CODEC_NONE, CODEC_GZIP, CODEC_LZ4)
"""The codecs for which kafka-python needs no additional library."""
SAMPLE = [
    Record(100 + n, NOW + n % 40 - 7, None if n % 3 == 0 else b"key%d" % n, None if n % 5 == 0 else b"value%d" % n * (n % 50), headers)
    for n in range(300)
    for headers in [(("h\u00e9", b"\1\2"), ("n", None), ("", b"")) if n % 7 == 0 else ()]
]

# Made by the stock Java client: three records from offset 100 (one of them older than the first), both markers, an emptied batch.
STOCK = {
    "none": (
        "000000000000006400000074ffffffff028d43ce9c0000000000020000018bcfe568000000018bcfe5692cffffffffffffffffffffffffffff000000"
        "0326000000026b0a76616c75650402680201026e013a001302012e76616c75652d76616c75652d76616c75652d76616c7565002000d8040412746f6d"
        "6273746f6e650100"
    ),
    "gzip": (
        "000000000000006400000075ffffffff02a6b6912a0001000000020000018bcfe568000000018bcfe5692cffffffffffffffffffffffffffff000000"
        "031f8b08000000000000ff5363606060cae62a4bcc294d6561ca606264ca63b462106662d4030be962900c0a0c375858844af273938a4bf2f3521919"
        "005613517f43000000"
    ),
    "snappy": (
        "00000000000000640000007bffffffff02fb37d3bf0002000000020000018bcfe568000000018bcfe5692cffffffffffffffffffffffffffff000000"
        "0382534e4150505900000000010000000100000036436426000000026b0a76616c75650402680201026e013a001302012e0513002d42060044002000"
        "d8040412746f6d6273746f6e650100"
    ),
    "lz4": (
        "000000000000006400000076ffffffff024535690a0003000000020000018bcfe568000000018bcfe5692cffffffffffffffffffffffffffff000000"
        "0304224d1860408236000000f10b26000000026b0a76616c75650402680201026e013a001302012e13001d2d0600f003002000d8040412746f6d6273"
        "746f6e65010000000000"
    ),
    "zstd": (
        "000000000000006400000074ffffffff0261eced8d0004000000020000018bcfe568000000018bcfe5692cffffffffffffffffffffffffffff000000"
        "0328b52ffd0058bc0100d40226000000026b0a76616c75650402680201026e013a001302012e2d002000d8040412746f6d6273746f6e650100020029"
        "5368c21c03010000"
    ),
    "commit": (
        "000000000000002a000000420000000902eb5ea633003000000000000000000000007b000000000000007b00000000000000050002ffffffff000000"
        "012000000008000000010c00000000004d00"
    ),
    "abort": (
        "000000000000002b0000004200000009022b87d8e2003000000000000000000000007b000000000000007b00000000000000050002ffffffff000000"
        "012000000008000000000c00000000004e00"
    ),
    "empty": ("00000000000000640000003100000009024456c31f001000000009ffffffffffffffff0000018bcfe5692c000000000000000500020000000a00000000"),
}

STOCK_RECORDS = [
    Record(100, NOW, b"k", b"value", (("h", b"\1"), ("n", None))),
    Record(101, NOW - 10, None, b"value-value-value-value"),
    Record(102, NOW + 300, b"tombstone", None),
]

by_codec = pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)


def stock(name: str) -> bytes:
    return bytes.fromhex(STOCK[name])


def recompress(batch: Buffer, codec: int) -> bytearray:
    header = read_batch_header(batch)
    return recompress_section(header, record_section(batch, header), codec)


def batch_with(section: bytes, count: int, *, base_offset: int = 0, base_timestamp: int = 0) -> bytearray:
    """Returns a batch of any bytes with a valid CRC."""
    fields = (base_offset, BATCH_OVERHEAD - 12 + len(section), -1, 2, 0, 0, count - 1, base_timestamp, base_timestamp, -1, -1, -1, count)
    batch = bytearray(HEADER.pack(*fields) + section)
    stamp_crc(batch, 0, len(batch))
    return batch


def record_bytes(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


@by_codec
def test_the_java_client_is_read(codec: int) -> None:
    raw = stock(CODEC_NAMES[codec])
    header = read_batch_header(raw)
    assert (header.codec, header.base_offset, header.record_count, header.max_timestamp) == (codec, 100, 3, NOW + 300)
    assert check_crc(raw, 0, len(raw))
    assert read_records(raw) == STOCK_RECORDS


def test_uncompressed_bytes_are_the_java_clients() -> None:
    assert encode_batch(STOCK_RECORDS, base_offset=100) == stock("none")


def test_markers_are_the_java_brokers() -> None:
    for name, kind, offset, epoch in (("commit", CONTROL_COMMIT, 42, 77), ("abort", CONTROL_ABORT, 43, 78)):
        batch = encode_control_batch(kind, 5, 2, epoch, 123, base_offset=offset, leader_epoch=9)
        assert batch == stock(name)
        assert read_control_record(batch) == ControlRecord(kind, epoch)
        assert read_batch_header(batch).next_offset == offset + 1


def test_an_emptied_batch_is_the_java_brokers() -> None:
    header = BatchHeader(100, 0, 9, 2, 0, 0x10 | CODEC_ZSTD, 9, NOW, NOW + 300, 5, 2, 10, 10)
    empty = rewrite_batch(header, [])
    assert empty == stock("empty")
    assert read_records(empty) == []


@by_codec
def test_round_trip(codec: int) -> None:
    batch = encode_batch(
        SAMPLE,
        base_offset=100,
        codec=codec,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=3,
        base_sequence=2**31 - 5,
        is_transactional=True,
    )
    header = read_batch_header(batch)
    assert header.size_bytes == len(batch)
    assert check_crc(batch, 0, len(batch))
    assert (header.partition_leader_epoch, header.producer_id, header.producer_epoch, header.last_sequence) == (4, 9, 3, 294)
    assert (header.last_offset, header.base_timestamp, header.max_timestamp) == (399, SAMPLE[0].timestamp, NOW + 32)
    assert header.is_transactional
    assert not header.is_control
    assert read_records(batch) == SAMPLE
    assert list(iter_records(memoryview(bytes(batch) + b"the next batch"))) == SAMPLE


fields = st.none() | st.binary(max_size=300)
records_of_any_kind = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**62),
        fields,
        fields,
        st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=80)), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(records=records_of_any_kind, codec=st.sampled_from(CODECS), base_offset=st.integers(0, 2**60))
def test_round_trip_of_anything(records: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    assert read_records(batch) == [record._replace(offset=base_offset + n) for n, record in enumerate(records)]
    assert recompress(recompress(batch, CODEC_LZ4), CODEC_NONE) == encode_batch(records, base_offset=base_offset)


def test_lengths_at_the_edges_of_the_varints() -> None:
    sizes = [0, 1, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193, 70_000, 1_100_000]
    records = [
        Record(n, NOW + size, bytes(size), bytes(size), (("h" * size, bytes(size)),) if size < 9000 else ()) for n, size in enumerate(sizes)
    ]
    assert read_records(encode_batch(records)) == records
    assert [encode_varint(n).hex() for n in (0, -1, 1, -2, 63, -64, 64, 2**31 - 1, -(2**31))] == [
        *["00", "01", "02", "03", "7e", "7f", "8001", "feffffff0f", "ffffffff0f"]
    ]


def built_by(builder: Any, records: Sequence[Record]) -> bytes:
    for n, record in enumerate(records):
        assert builder.append(n, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


@by_codec
def test_python_clients_batches_are_read(codec: int) -> None:
    settings_of_both = {
        "magic": 2,
        "compression_type": codec,
        "is_transactional": 1,
        "producer_id": 12,
        "producer_epoch": 1,
        "base_sequence": 5,
        "batch_size": 1 << 20,
    }
    builders = [DefaultRecordBatchBuilder(**settings_of_both)]
    if codec in KAFKA_PYTHON_CODECS:
        builders.append(kafka_python.DefaultRecordBatchBuilder(**settings_of_both))
    for builder in builders:
        batch = built_by(builder, SAMPLE)
        header = read_batch_header(batch)
        assert check_crc(batch, 0, len(batch))
        assert (header.codec, header.producer_id, header.base_sequence, header.is_transactional) == (codec, 12, 5, True)
        assert read_records(batch) == [record._replace(offset=n) for n, record in enumerate(SAMPLE)]


@by_codec
def test_python_clients_read_our_batches(codec: int) -> None:
    batch = bytes(encode_batch(SAMPLE, base_offset=100, codec=codec))
    readers = [DefaultRecordBatch(batch)]
    if codec in KAFKA_PYTHON_CODECS:
        readers.append(kafka_python.DefaultRecordBatch(batch))
    for theirs in readers:
        assert theirs.validate_crc()
        assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == SAMPLE


def test_log_append_time_stands_for_every_record() -> None:
    batch = encode_batch(SAMPLE)
    set_max_timestamp(batch, 0, LOG_APPEND_TIME, NOW + 999)
    assert read_batch_header(batch).timestamp_type == LOG_APPEND_TIME
    assert {record.timestamp for record in read_records(batch)} == {NOW + 999}


def test_rewriting_keeps_offsets_producer_and_epoch() -> None:
    batch = encode_batch(SAMPLE, base_offset=100, codec=CODEC_ZSTD, leader_epoch=4, producer_id=9, producer_epoch=3, base_sequence=50)
    header = read_batch_header(batch)
    retained = [record for record in read_records(batch) if record.offset % 10 == 3]
    rewritten = rewrite_batch(header, retained)
    after = read_batch_header(rewritten)
    assert check_crc(rewritten, 0, len(rewritten))
    assert read_records(rewritten) == retained
    assert after.record_count == len(retained)
    assert after.max_timestamp == max(record.timestamp for record in retained)
    kept = (
        "base_offset",
        "last_offset",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "attributes",
    )
    assert [getattr(after, name) for name in kept] == [getattr(header, name) for name in kept]
    assert rewrite_batch(header, SAMPLE) == batch


def test_a_delete_horizon_stays_until_the_batch_is_empty() -> None:
    header = read_batch_header(encode_batch(SAMPLE, base_offset=100))
    first = rewrite_batch(header, SAMPLE[:5], delete_horizon_ms=NOW + 10**9)
    marked = read_batch_header(first)
    assert marked.has_delete_horizon
    assert marked.delete_horizon_ms == NOW + 10**9
    assert read_records(first) == SAMPLE[:5]
    second = rewrite_batch(marked, SAMPLE[2:4])
    assert read_batch_header(second).delete_horizon_ms == NOW + 10**9
    assert read_records(second) == SAMPLE[2:4]
    assert not read_batch_header(rewrite_batch(marked, [])).has_delete_horizon


def test_rewriting_under_log_append_time_keeps_the_brokers_time() -> None:
    batch = encode_batch(SAMPLE, base_offset=100)
    set_max_timestamp(batch, 0, LOG_APPEND_TIME, NOW + 999)
    rewritten = rewrite_batch(read_batch_header(batch), SAMPLE[:2])
    assert read_batch_header(rewritten).max_timestamp == NOW + 999
    assert {record.timestamp for record in read_records(rewritten)} == {NOW + 999}


def test_header_keys_that_are_not_utf8_survive_a_rewrite() -> None:
    body = b"\0\0\0\x01\x01\x02" + encode_varint(3) + b"a\xffb" + b"\x01"
    batch = batch_with(record_bytes(body), 1)
    records = read_records(batch)
    assert rewrite_batch(read_batch_header(batch), records)[RECORDS_AT:] == batch[RECORDS_AT:]


@by_codec
def test_recompressing_keeps_all_but_the_codec(codec: int) -> None:
    for before in CODECS:
        batch = encode_batch(SAMPLE, base_offset=100, codec=before, producer_id=9, producer_epoch=0, base_sequence=7, is_transactional=True)
        after = recompress(batch, codec)
        assert check_crc(after, 0, len(after))
        assert read_records(after) == SAMPLE
        changed = ("batch_length", "crc", "attributes")
        old, new = read_batch_header(batch), read_batch_header(after)
        assert {name for name in BatchHeader._fields if getattr(old, name) != getattr(new, name)} <= set(changed)
        assert new.attributes == old.attributes & ~7 | codec


def test_markers_of_other_kinds_and_broken_ones() -> None:
    assert read_control_record(rewrite_batch(read_batch_header(stock("commit")), [])) is None
    assert read_control_record(encode_batch([Record(0, 0, b"\0\0\0\2", b"\0\0")], is_control=True)) == ControlRecord(2, -1)
    for key, value in ((None, b"\0\0\0\0\0\0"), (b"\0\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\1", None), (b"\0\0\0\0", b"\0\0\0\0\0")):
        with pytest.raises(WireError):
            read_control_record(encode_batch([Record(0, 0, key, value)], is_control=True))


HUGE = encode_varint(2**31 - 1)
BROKEN = {
    "length 2^31-1": HUGE + b"\0\0\0\1\1\0",
    "length -1": b"\1\0\0\0\1\1\0",
    "length over 5 bytes": b"\xff\xff\xff\xff\xff\xff\0",
    "length over 32 bits": b"\xfe\xff\xff\xff\x1f",
    "key beyond": record_bytes(b"\0\0\0" + HUGE + b"k\1\0"),
    "key -2": record_bytes(b"\0\0\0\3\1\0"),
    "value beyond": record_bytes(b"\0\0\0\1" + HUGE + b"v\0"),
    "value -2": record_bytes(b"\0\0\0\1\3\0"),
    "value -65": record_bytes(b"\0\0\0\1" + encode_varint(-65) + b"\0"),
    "timestamp over 10 bytes": record_bytes(b"\0" + b"\xff" * 11 + b"\0\0\1\1\0"),
    "headers 2^31-1": record_bytes(b"\0\0\0\1\1" + HUGE + b"\2h\1"),
    "headers -1": record_bytes(b"\0\0\0\1\1\1"),
    "header key null": record_bytes(b"\0\0\0\1\1\2\1\1"),
    "header key -2": record_bytes(b"\0\0\0\1\1\2\3\1"),
    "header key beyond": record_bytes(b"\0\0\0\1\1\2" + HUGE + b"h\1"),
    "header value -2": record_bytes(b"\0\0\0\1\1\2\2h\3"),
    "header value beyond": record_bytes(b"\0\0\0\1\1\2\2h" + HUGE),
    "record too long": record_bytes(b"\0\0\0\1\1\0extra"),
    "record too short": encode_varint(4) + b"\0\0\0\1\1\0",
    "bytes behind": record_bytes(b"\0\0\0\1\1\0") + b"x",
    "nothing": b"",
}


@pytest.mark.parametrize("section", BROKEN.values(), ids=BROKEN)
def test_broken_records_are_refused(section: bytes) -> None:
    with pytest.raises(WireError):
        read_records(batch_with(section, 1))
    for codec in (CODEC_LZ4, CODEC_ZSTD):
        with pytest.raises(WireError):
            read_records(recompress(batch_with(section, 1), codec))


@pytest.mark.parametrize("count", [2, 2**31 - 1, -1, 0])
def test_counts_that_lie_are_refused(count: int) -> None:
    batch = batch_with(record_bytes(b"\0\0\0\1\1\0"), 1)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(WireError):
        read_records(batch)


def test_what_a_batch_unpacks_to_is_capped() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(100_000))], codec=CODEC_ZSTD)
    assert len(read_records(batch, decompressed_bytes_max=100_100)) == 1
    with pytest.raises(WireError, match="more than 100000 bytes"):
        read_records(batch, decompressed_bytes_max=100_000)


@by_codec
def test_truncation_raises_nothing_else(codec: int) -> None:
    batch = bytes(encode_batch(SAMPLE[:20], codec=codec))
    for end in range(len(batch)):
        with pytest.raises(WireError):
            read_records(batch[:end])
    section = batch[RECORDS_AT:]
    for end in range(len(section)):
        cut = bytearray(batch[: RECORDS_AT + end])
        cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
        with pytest.raises(WireError):
            read_records(cut)


@by_codec
def test_flipped_bits_raise_nothing_else(codec: int) -> None:
    chance = random.Random(codec)
    batch = bytes(encode_batch(SAMPLE[:30], codec=codec))
    refused = 0
    for _ in range(1500):
        broken = bytearray(batch)
        for position in chance.sample(range(17, len(broken)), chance.randrange(1, 4)):
            broken[position] ^= 1 << chance.randrange(8)
        assert not check_crc(broken, 0, len(broken))
        try:
            assert len(read_records(broken, decompressed_bytes_max=1 << 20)) <= len(SAMPLE)
        except WireError:
            refused += 1
    assert refused > 100


@settings(max_examples=300, deadline=None)
@given(section=st.binary(max_size=60), count=st.integers(0, 5))
def test_noise_raises_nothing_else(section: bytes, count: int) -> None:
    try:
        assert len(read_records(batch_with(section, count))) == count
    except WireError as error:
        assert str(error)
