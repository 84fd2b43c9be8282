"""Which chunks may be staged."""

from __future__ import annotations

from struct import pack_into

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.log_config import LogConfig
from ottla.storage.staged_chunk import CHUNK_BYTES_MAX, LOOKED_INTO_RECORDS_MAX, batches_of, check_chunk
from ottla.wire.batch_header import stamp_crc
from ottla.wire.compression import CODEC_LZ4
from ottla.wire.records import Record, encode_batch
from tests.fakes.log_settings import log_settings

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, is_transactional: bool = True, **options: object) -> bytearray:
    records = [Record(0, NOW_MS, None, value) for value in values]
    return bytearray(encode_batch(records, is_transactional=is_transactional, **options))  # type: ignore[arg-type]


def with_records(count: int) -> bytearray:
    """A compressed batch whose header has this number of records; its contents are not checked."""
    data = batch(b"a", codec=CODEC_LZ4)
    pack_into(">i", data, 23, count - 1)
    pack_into(">i", data, 57, count)
    stamp_crc(data, 0, len(data))
    return data


def check(data: bytes | bytearray, config: LogConfig | None = None, **options: int) -> tuple[int, int]:
    return check_chunk(memoryview(bytearray(data)), config or log_settings(), now_ms=NOW_MS, **options)


def test_batches_and_records_are_counted() -> None:
    assert check(batch(b"a", b"b")) == (1, 2)
    assert check(batch(b"a", b"b") + batch(b"c", codec=CODEC_LZ4)) == (2, 3)


def test_batches_are_cut_by_their_lengths() -> None:
    first, second = batch(b"a"), batch(b"bc")
    assert [bytes(found) for found in batches_of(memoryview(first + second))] == [first, second]
    assert [len(found) for found in batches_of(memoryview(first + b"xyz"))] == [len(first), 3]
    assert list(batches_of(memoryview(b""))) == []


def damaged(position: int, value: bytes) -> bytearray:
    data = batch(b"a")
    data[position : position + len(value)] = value
    return data


CHUNKS = {
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "a few bytes": (b"abc", ErrorCode.INVALID_RECORD),
    "half a batch": (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
    "bytes behind a batch": (batch(b"a") + b"x", ErrorCode.INVALID_RECORD),
    "a negative length": (damaged(8, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
    "a length of everything": (damaged(8, b"\x7f\xff\xff\xff"), ErrorCode.INVALID_RECORD),
    "another byte": (damaged(-1 % len(batch(b"a")), b"\xff"), ErrorCode.CORRUPT_MESSAGE),
    "an old format": (damaged(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "no transaction": (batch(b"a", is_transactional=False), ErrorCode.INVALID_RECORD),
    "a producer": (batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0), ErrorCode.INVALID_RECORD),
    "too many records": (with_records(1 << 30) + with_records(1), ErrorCode.INVALID_RECORD),
    "counts that lie": (damaged(57, b"\0\0\0\x02"), ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_what_may_not_be_staged(name: str) -> None:
    data, code = CHUNKS[name]
    with pytest.raises(ApiError) as refused:
        check(data)
    assert refused.value.code is code


def test_a_lying_count_under_a_right_crc() -> None:
    data = damaged(57, b"\0\0\0\x02")
    stamp_crc(data, 0, len(data))
    with pytest.raises(ApiError) as refused:
        check(data)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_sizes() -> None:
    small = log_settings(max_message_bytes=100)
    with pytest.raises(ApiError) as refused:
        check(batch(b"x" * 100), small)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    count = CHUNK_BYTES_MAX // len(batch(b"x" * 4000)) + 1
    with pytest.raises(ApiError, match="a staged chunk of"):
        check(batch(b"x" * 4000) * count, log_settings(max_message_bytes=10_000))
    large = log_settings(max_message_bytes=4 * CHUNK_BYTES_MAX)
    assert check(batch(b"x" * 2 * CHUNK_BYTES_MAX), large) == (1, 1)


def test_the_number_of_batches_is_bounded() -> None:
    assert check(batch(b"a") * 3, batches_max=3) == (3, 3)
    with pytest.raises(ApiError) as refused:
        check(batch(b"a") * 4, batches_max=3)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_the_rules_of_the_topic_count() -> None:
    """The records of a chunk for a compacted topic need keys, as in Produce."""
    with pytest.raises(ApiError) as refused:
        check(batch(b"a"), log_settings(is_compacted=True))
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_records_of_a_compacted_topic_are_looked_into() -> None:
    compacted = log_settings(is_compacted=True)
    assert check(batch(b"a"), log_settings()) == (1, 1)
    for chunk in (batch(b"a"), with_records(LOOKED_INTO_RECORDS_MAX + 1)):
        with pytest.raises(ApiError) as caught:
            check(chunk, compacted)
        assert caught.value.code is ErrorCode.INVALID_RECORD
