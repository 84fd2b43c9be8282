"""Strict checks of clients' batches: each fault is refused with the code by which the client retries or gives up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused, WireError
from ottla.wire.record_validation import RecordsSummary, read_zigzag, validate_records
from ottla.wire.records import (
    CODEC_LZ4,
    CODEC_NAMES,
    Record,
    encode_batch,
    encode_varint,
    read_records,
    recompress,
    set_attributes,
    stamp_crc,
)
from tests.wire.test_records import BROKEN, NOW, STOCK, batch_with, record_bytes, stock

PLAIN = b"\0\0\0\1\1\0"
SAMPLE = [
    Record(n, NOW + (n * 37) % 11, None if n % 3 == 0 else b"k" * n, None if n % 4 == 0 else b"v" * (n * 3), (("h\u00e9", None),) * (n % 3))
    for n in range(120)
]

by_codec = pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)


def code_of(batch: bytes | bytearray, **limits: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        validate_records(batch, **limits)  # type: ignore[arg-type]
    assert caught.value.message
    return caught.value.code


@by_codec
def test_sound_batches_pass(codec: int) -> None:
    batch = encode_batch(SAMPLE, codec=codec)
    unpacked = len(encode_batch(SAMPLE)) - 61
    assert validate_records(batch) == RecordsSummary(NOW, NOW + 10, unpacked)
    assert validate_records(memoryview(bytes(batch)), decompressed_bytes_max=unpacked) == RecordsSummary(NOW, NOW + 10, unpacked)
    assert validate_records(stock(CODEC_NAMES[codec])).max_timestamp == NOW + 300
    assert validate_records(stock(CODEC_NAMES[codec])).min_timestamp == NOW - 10


def test_timestamps_before_the_first_and_of_minus_one() -> None:
    assert validate_records(encode_batch([Record(0, 50, None, None), Record(0, 20, None, None)]))[:2] == (20, 50)
    assert validate_records(encode_batch([Record(0, -1, None, None)]))[:2] == (-1, -1)
    assert validate_records(encode_batch([Record(0, 2**63 - 1, None, None), Record(0, 0, None, None)]))[:2] == (0, 2**63 - 1)


def test_timestamps_beyond_64_bits_are_refused() -> None:
    early = batch_with(record_bytes(b"\0" + encode_varint(-5) + b"\0\1\1\0"), 1, base_timestamp=-(2**63))
    late = batch_with(record_bytes(b"\0" + encode_varint(2**62) + b"\0\1\1\0"), 1, base_timestamp=2**62)
    assert code_of(early) is ErrorCode.INVALID_RECORD
    assert code_of(late) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("section", BROKEN.values(), ids=BROKEN)
def test_broken_records_are_refused(section: bytes) -> None:
    batch = batch_with(section, 1)
    assert code_of(batch) is ErrorCode.INVALID_RECORD
    for codec in (1, 2, 3, 4):
        assert code_of(bytes(recompress(batch, codec))) is ErrorCode.INVALID_RECORD


def test_header_keys_must_be_utf8() -> None:
    batch = batch_with(record_bytes(b"\0\0\0\1\1\2" + encode_varint(3) + b"a\xffb\1"), 1)
    assert len(read_records(batch)) == 1
    assert code_of(batch) is ErrorCode.INVALID_RECORD


def test_offset_deltas_must_be_consecutive() -> None:
    for deltas in ((0, 2), (1, 0), (0, 0), (0, -1), (1,), (0, 1, 3), (0, 64)):
        section = b"".join(record_bytes(b"\0\0" + encode_varint(delta) + b"\1\1\0") for delta in deltas)
        assert code_of(batch_with(section, len(deltas))) is ErrorCode.INVALID_RECORD


def test_counts_must_be_the_last_offset_delta_and_one() -> None:
    section = record_bytes(PLAIN)
    for count, last_offset_delta in ((1, 1), (2, 0), (0, -1), (0, 0), (-1, -2), (-1, 0), (2**31 - 1, 2**31 - 2), (-(2**31), 2**31 - 1)):
        batch = batch_with(section, 1)
        batch[57:61] = count.to_bytes(4, "big", signed=True)
        batch[23:27] = last_offset_delta.to_bytes(4, "big", signed=True)
        stamp_crc(batch, 0, len(batch))
        assert code_of(batch) is ErrorCode.INVALID_RECORD, count


def test_damage_on_the_way_is_distinguished() -> None:
    batch = encode_batch(SAMPLE)
    for position in (17, 20, 21, 43, 61, len(batch) - 1):
        broken = bytearray(batch)
        broken[position] ^= 1
        assert code_of(broken) is ErrorCode.CORRUPT_MESSAGE
    for end in (0, 11, 60, 61, len(batch) - 1):
        assert code_of(batch[:end]) is ErrorCode.CORRUPT_MESSAGE
    for magic in (0, 1, 3, 255):
        broken = bytearray(batch)
        broken[16] = magic
        assert code_of(broken) is ErrorCode.CORRUPT_MESSAGE
    for length in (-1, 0, 48, len(batch), 2**31 - 1):
        broken = bytearray(batch)
        broken[8:12] = length.to_bytes(4, "big", signed=True)
        assert code_of(broken) is ErrorCode.CORRUPT_MESSAGE


def test_a_partition_brings_one_batch() -> None:
    assert code_of(encode_batch(SAMPLE) + encode_batch(SAMPLE)) is ErrorCode.INVALID_RECORD
    assert code_of(encode_batch(SAMPLE) + b"\0") is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    batch = encode_batch(SAMPLE)
    set_attributes(batch, 0, codec)
    assert code_of(batch) is ErrorCode.INVALID_RECORD


@by_codec
def test_what_a_batch_unpacks_to_is_capped(codec: int) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(50_000))], codec=codec)
    unpacked = validate_records(batch).unpacked_bytes
    assert validate_records(batch, decompressed_bytes_max=unpacked).unpacked_bytes == unpacked
    if codec:
        assert code_of(batch, decompressed_bytes_max=unpacked - 1) is ErrorCode.INVALID_RECORD


def test_records_that_are_not_packed_as_the_header_says() -> None:
    for codec in (1, 2, 3, 4):
        batch = encode_batch(SAMPLE)
        set_attributes(batch, 0, codec)
        assert code_of(batch) is ErrorCode.INVALID_RECORD
    empty = encode_batch(SAMPLE, codec=CODEC_LZ4)[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    stamp_crc(empty, 0, 61)
    assert code_of(empty) is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_needs_keys() -> None:
    keyed = [record._replace(key=b"") for record in SAMPLE]
    assert validate_records(encode_batch(keyed), is_key_required=True).max_timestamp == NOW + 10
    with pytest.raises(ApiError, match="no key") as caught:
        validate_records(encode_batch([*keyed, Record(0, NOW, None, b"v")]), is_key_required=True)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_records_without_keys_are_named() -> None:
    batch = encode_batch([Record(0, NOW, key, b"v") for key in (None, b"a", None, b"b")])
    with pytest.raises(RecordsRefused, match="2 of 4 records") as caught:
        validate_records(batch, is_key_required=True)
    assert list(caught.value.faults) == [0, 2]


def test_control_batches_are_judged_by_their_bytes_only() -> None:
    assert validate_records(bytes.fromhex(STOCK["commit"])).unpacked_bytes == 17


@settings(max_examples=300, deadline=None)
@given(section=st.binary(max_size=60), count=st.integers(1, 4))
def test_what_passes_can_be_read(section: bytes, count: int) -> None:
    """Strict is a subset of readable: the slow reader agrees with all that the walk lets through."""
    batch = batch_with(section, count)
    try:
        summary = validate_records(batch)
    except ApiError:
        return
    records = read_records(batch)
    assert [record.offset for record in records] == list(range(count))
    assert (min(r.timestamp for r in records), max(r.timestamp for r in records)) == summary[:2]


@by_codec
def test_flipped_bits_under_a_true_crc_raise_nothing_else(codec: int) -> None:
    chance = random.Random(codec)
    batch = bytes(encode_batch(SAMPLE[:30], codec=codec))
    refused = 0
    for _ in range(1500):
        broken = bytearray(batch)
        for position in chance.sample(range(21, len(broken)), chance.randrange(1, 4)):
            broken[position] ^= 1 << chance.randrange(8)
        stamp_crc(broken, 0, len(broken))
        try:
            validate_records(broken, decompressed_bytes_max=1 << 20)
        except ApiError as error:
            assert error.code is ErrorCode.INVALID_RECORD
            refused += 1
        else:
            assert len(read_records(broken)) == 30
    assert refused > 100


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
