"""Strict checks of the records that clients send."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode, RecordsRefused, WireError
from ottla.wire.record_validation import UNBOUNDED, read_zigzag, validate_section
from ottla.wire.records import (
    CODEC_LZ4,
    CODEC_NAMES,
    DECOMPRESSED_BYTES_MAX,
    RECORDS_AT,
    Buffer,
    Record,
    encode_batch,
    encode_varint,
    read_batch_header,
    read_records,
    record_section,
    set_attributes,
    stamp_crc,
)
from tests.wire.test_records import BROKEN, NOW, batch_with, recompress, record_bytes, stock

PLAIN = b"\0\0\0\1\1\0"
SAMPLE = [
    Record(n, NOW + (n * 37) % 11, None if n % 3 == 0 else b"k" * n, None if n % 4 == 0 else b"v" * (n * 3), (("h\u00e9", None),) * (n % 3))
    for n in range(120)
]

by_codec = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)


def check(batch: bytes | bytearray | memoryview, *, bytes_max: int = DECOMPRESSED_BYTES_MAX, is_key_required: bool = False) -> Buffer:
    header = read_batch_header(batch)
    return validate_section(record_section(batch, header, bytes_max), header, is_key_required=is_key_required, steps_max=UNBOUNDED)


def refused(batch: bytes | bytearray) -> bool:
    with pytest.raises(WireError) as caught:
        check(batch)
    return bool(str(caught.value))


@by_codec
def test_sound_batches_pass(codec: int) -> None:
    batch = encode_batch(SAMPLE, codec=codec)
    section = encode_batch(SAMPLE)[RECORDS_AT:]
    assert check(batch) == check(memoryview(bytes(batch)), bytes_max=len(section)) == section
    assert len(check(stock(CODEC_NAMES[codec]))) > 0


def test_sound_timestamps_pass() -> None:
    for times in ((50, 20), (-1,), (2**63 - 1, 0)):
        assert check(encode_batch([Record(0, time, None, None) for time in times]))


def test_timestamps_beyond_64_bits_are_refused() -> None:
    early = batch_with(record_bytes(b"\0" + encode_varint(-5) + b"\0\1\1\0"), 1, base_timestamp=-(2**63))
    late = batch_with(record_bytes(b"\0" + encode_varint(2**62) + b"\0\1\1\0"), 1, base_timestamp=2**62)
    assert refused(early)
    assert refused(late)


@pytest.mark.parametrize("section", BROKEN.values(), ids=BROKEN)
def test_broken_records_are_refused(section: bytes) -> None:
    batch = batch_with(section, 1)
    assert refused(batch)
    for codec in (1, 2, 3, 4):
        assert refused(recompress(batch, codec))


def test_header_keys_must_be_utf8() -> None:
    batch = batch_with(record_bytes(b"\0\0\0\1\1\2" + encode_varint(3) + b"a\xffb\1"), 1)
    assert len(read_records(batch)) == 1
    assert refused(batch)


def test_offset_deltas_must_be_consecutive() -> None:
    for deltas in ((0, 2), (1, 0), (0, 0), (0, -1), (1,), (0, 1, 3), (0, 64)):
        section = b"".join(record_bytes(b"\0\0" + encode_varint(delta) + b"\1\1\0") for delta in deltas)
        assert refused(batch_with(section, len(deltas)))


@pytest.mark.parametrize("count", [0, 2, -1, 2**31 - 1])
def test_counts_must_be_those_of_the_records(count: int) -> None:
    assert refused(batch_with(record_bytes(PLAIN), count))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    batch = encode_batch(SAMPLE)
    set_attributes(batch, 0, codec)
    assert refused(batch)


def test_records_that_are_not_packed_as_the_header_says() -> None:
    for codec in (1, 2, 3, 4):
        batch = encode_batch(SAMPLE)
        set_attributes(batch, 0, codec)
        assert refused(batch)
    empty = encode_batch(SAMPLE, codec=CODEC_LZ4)[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    stamp_crc(empty, 0, 61)
    assert refused(empty)


def test_a_compacted_topic_needs_keys() -> None:
    keyed = [record._replace(key=b"") for record in SAMPLE]
    assert check(encode_batch(keyed), is_key_required=True)
    with pytest.raises(RecordsRefused, match="no key") as caught:
        check(encode_batch([*keyed, Record(0, NOW, None, b"v")]), is_key_required=True)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_without_keys_are_named() -> None:
    batch = encode_batch([Record(0, NOW, key, b"v") for key in (None, b"a", None, b"b")])
    with pytest.raises(RecordsRefused, match="2 of 4 records") as caught:
        check(batch, is_key_required=True)
    assert list(caught.value.faults) == [0, 2]


def test_control_batches_are_judged_by_their_bytes_only() -> None:
    assert len(check(stock("commit"))) == 17


@settings(max_examples=300, deadline=None)
@given(section=st.binary(max_size=60), count=st.integers(1, 4))
def test_what_passes_can_be_read(section: bytes, count: int) -> None:
    """All records that pass the strict check are readable: the slow reader reads the same records."""
    batch = batch_with(section, count)
    try:
        check(batch)
    except WireError:
        return
    records = read_records(batch)
    assert [record.offset for record in records] == list(range(count))
    assert all(-(2**63) <= record.timestamp < 2**63 for record in records)


@by_codec
def test_flipped_bits_raise_nothing_else(codec: int) -> None:
    chance = random.Random(codec)
    batch = bytes(encode_batch(SAMPLE[:30], codec=codec))
    refusals = 0
    for _ in range(1500):
        broken = bytearray(batch)
        for position in chance.sample(range(RECORDS_AT, len(broken)), chance.randrange(1, 4)):
            broken[position] ^= 1 << chance.randrange(8)
        try:
            check(broken, bytes_max=1 << 20)
        except WireError:
            refusals += 1
        else:
            assert len(read_records(broken)) == 30
    assert refusals > 100


@settings(max_examples=200, deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_zigzag_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    number, end = read_zigzag(encoded, 0, 64)
    assert (number >> 1 ^ -(number & 1), end) == (value, len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_zigzag(encoded, 0) == (number, end)
    else:
        with pytest.raises(WireError):
            read_zigzag(encoded, 0)
