"""Every refusal of a batch with its error, and the fields that the broker stamps (R1, R2, R3, R6, R7, R8, R9, R10)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, ErrorCode, RecordsRefused
from ottla.base.log_config import LogConfig
from ottla.storage.inspection import InspectHere
from ottla.storage.validate import check_batch, is_stamped, settle_times, stamp_batch
from ottla.wire.batch_header import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BATCH_LENGTH_AT,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    PRODUCER_EPOCH_AT,
    RECORD_COUNT_AT,
    RECORDS_AT,
    BatchHeader,
    check_crc,
    read_batch_header,
    stamp_crc,
)
from ottla.wire.records import CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD, CONTROL_COMMIT, Record, encode_batch, encode_control_batch, read_records
from tests.fakes.log_settings import log_settings

NOW = 1_700_000_000_000
HOUR = 3_600_000
PLAIN = log_settings()
RECORDS = [Record(0, NOW, b"AA", b"one"), Record(1, NOW + 5, None, b"two"), Record(2, NOW, b"UA", None)]


def good(**fields: object) -> bytearray:
    return encode_batch(RECORDS, **fields)  # type: ignore[arg-type]


def changed(position: int, data: bytes, batch: bytearray | None = None) -> bytearray:
    """Returns a batch with changed bytes and a right CRC."""
    batch = good() if batch is None else batch
    batch[position : position + len(data)] = data
    stamp_crc(batch, 0, len(batch))
    return batch


def check(batch: bytes | bytearray, config: LogConfig) -> BatchHeader:
    """Runs the checks of a client's batch before its append."""
    view = memoryview(bytearray(batch))
    header = check_batch(view, config)
    found = InspectHere().inspect(view, header, config)
    return header if config.is_log_append_time else settle_times(view, header, found and found.times, config, now_ms=NOW)


def refusal(batch: bytes | bytearray, config: LogConfig = PLAIN) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check(batch, config)
    assert caught.value.message, "a refusal says why"
    return caught.value.code


@pytest.mark.parametrize("codec", [0, CODEC_GZIP, CODEC_LZ4, CODEC_ZSTD])
def test_a_good_batch_passes_as_it_is(codec: int) -> None:
    batch = good(codec=codec, producer_id=7, producer_epoch=0, base_sequence=3, is_transactional=True)
    before = bytes(batch)
    assert check(batch, log_settings(is_strict=True)) == read_batch_header(batch)
    assert batch == before


REFUSED: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "R1 nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
    "R1 header cut": (lambda: good()[:60], ErrorCode.INVALID_RECORD),
    "R1 records cut": (lambda: good()[:-1], ErrorCode.INVALID_RECORD),
    "R1 two batches": (lambda: good() + good(), ErrorCode.INVALID_RECORD),
    "R1 bytes behind": (lambda: good() + b"\0", ErrorCode.INVALID_RECORD),
    "R1 length below the header": (lambda: changed(BATCH_LENGTH_AT, b"\0\0\0\1"), ErrorCode.CORRUPT_MESSAGE),
    "R1 negative length": (lambda: changed(BATCH_LENGTH_AT, b"\xff\xff\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
    "R2 magic 0": (lambda: changed(MAGIC_AT, b"\0"), ErrorCode.INVALID_RECORD),
    "R2 magic 1, short": (lambda: bytes(16) + b"\1", ErrorCode.INVALID_RECORD),
    "R2 magic 3": (lambda: changed(MAGIC_AT, b"\3"), ErrorCode.CORRUPT_MESSAGE),
    "R2 wrong CRC": (lambda: good()[:-1] + b"\7", ErrorCode.CORRUPT_MESSAGE),
    "R3 count above the offsets": (lambda: changed(RECORD_COUNT_AT, b"\0\0\0\4"), ErrorCode.INVALID_RECORD),
    "R3 count below the offsets": (lambda: changed(LAST_OFFSET_DELTA_AT, b"\0\0\0\4"), ErrorCode.INVALID_RECORD),
    "R3 negative count": (
        lambda: changed(LAST_OFFSET_DELTA_AT, b"\xff\xff\xff\xfe", changed(RECORD_COUNT_AT, b"\xff\xff\xff\xff")),
        ErrorCode.INVALID_RECORD,
    ),
    "R3 no records": (
        lambda: changed(LAST_OFFSET_DELTA_AT, b"\xff\xff\xff\xff", changed(RECORD_COUNT_AT, b"\0\0\0\0")),
        ErrorCode.INVALID_RECORD,
    ),
    "R3 more records than bytes": (
        lambda: changed(LAST_OFFSET_DELTA_AT, b"\x00\xff\xff\xff", changed(RECORD_COUNT_AT, b"\1\0\0\0")),
        ErrorCode.INVALID_RECORD,
    ),
    "base offset": (lambda: changed(BASE_OFFSET_AT, b"\0\0\0\0\0\0\0\1"), ErrorCode.INVALID_RECORD),
    "R7 control batch": (lambda: encode_control_batch(CONTROL_COMMIT, 7, 0, 1, NOW), ErrorCode.INVALID_RECORD),
    "R7 no sequence": (lambda: good(producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "R7 no epoch": (lambda: good(producer_id=7, base_sequence=0), ErrorCode.INVALID_RECORD),
    "R7 transaction without a producer": (lambda: good(is_transactional=True), ErrorCode.INVALID_RECORD),
    "delete horizon": (lambda: changed(ATTRIBUTES_AT, b"\0\x40"), ErrorCode.INVALID_RECORD),
    "append time": (lambda: changed(ATTRIBUTES_AT, b"\0\x08"), ErrorCode.INVALID_TIMESTAMP),
    "R8 codec 5": (lambda: changed(ATTRIBUTES_AT, b"\0\5"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "R8 codec 7": (lambda: changed(ATTRIBUTES_AT, b"\0\7"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_r_every_bad_batch_has_its_error(name: str) -> None:
    make, code = REFUSED[name]
    assert refusal(make()) is code


def test_r9_a_compressed_batch_without_bytes() -> None:
    empty = good(codec=CODEC_LZ4)[:RECORDS_AT]
    assert refusal(changed(BATCH_LENGTH_AT, (len(empty) - 12).to_bytes(4, "big"), empty)) is ErrorCode.CORRUPT_MESSAGE


def test_r10_the_size_counts_as_it_was_sent() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(100_000))], codec=CODEC_GZIP)
    assert check_batch(memoryview(batch), log_settings(max_message_bytes=len(batch))).record_count == 1
    assert refusal(batch, log_settings(max_message_bytes=len(batch) - 1)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [0, CODEC_LZ4])
@pytest.mark.parametrize(
    "times", [(NOW + HOUR + 1, NOW), (NOW, NOW + HOUR + 1), (NOW - HOUR - 1, NOW), (NOW, NOW - HOUR - 1), (NOW, 1, NOW), (-1, 1, NOW)]
)
def test_r6_timestamps_out_of_the_topics_window(times: tuple[int, ...], codec: int) -> None:
    """The timestamp of every record is checked, not only of the first and the newest."""
    config = log_settings(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)
    batch = encode_batch([Record(offset, time, None, b"") for offset, time in enumerate(times)], codec=codec)
    assert refusal(batch, config) is ErrorCode.INVALID_TIMESTAMP
    assert check(batch, log_settings(timestamp_after_max_ms=HOUR + 1)).max_timestamp == max(times)


def test_r6_records_out_of_the_window_are_named() -> None:
    config = log_settings(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)
    batch = encode_batch([Record(0, NOW - HOUR - 1, None, b""), Record(1, NOW, None, b""), Record(2, NOW + HOUR + 1, None, b"")])
    with pytest.raises(RecordsRefused) as caught:
        check(batch, config)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert list(caught.value.faults) == [0, 2]


def test_r6_a_batch_that_cannot_be_read_is_refused_as_a_whole() -> None:
    config = log_settings(timestamp_before_max_ms=HOUR)
    batch = changed(RECORDS_AT, b"\xff\xff", encode_batch([Record(0, NOW - HOUR - 1, None, b"v")]))
    assert refusal(batch, config) is ErrorCode.INVALID_RECORD


def test_r6_of_many_records_none_is_named() -> None:
    config = log_settings(timestamp_before_max_ms=HOUR)
    many = encode_batch([Record(0, NOW - HOUR - 1, None, b"")] * 1_001, codec=CODEC_ZSTD)
    long = encode_batch([Record(0, NOW - HOUR - 1, None, bytes(1 << 18))], codec=CODEC_ZSTD)
    for batch in (many, long):
        with pytest.raises(ApiError) as caught:
            check(batch, config)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP and not isinstance(caught.value, RecordsRefused)


def test_r8_a_batch_of_more_records_than_could_be_unpacked_is_refused_by_its_header() -> None:
    count = (1 << 20) // 7 + 1
    fields = count.to_bytes(4, "big")
    batch = changed(RECORD_COUNT_AT, fields, changed(LAST_OFFSET_DELTA_AT, (count - 1).to_bytes(4, "big"), good(codec=CODEC_ZSTD)))
    assert refusal(batch, log_settings(decompressed_bytes_max=1 << 20)) is ErrorCode.INVALID_RECORD
    assert check_batch(memoryview(batch), log_settings(decompressed_bytes_max=1 << 21)).record_count == count


def test_r6_the_window_does_not_matter_when_the_broker_stamps() -> None:
    config = log_settings(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR, is_log_append_time=True)
    assert check_batch(memoryview(encode_batch([Record(0, 1, None, b"")])), config).base_timestamp == 1


def test_a_batch_without_timestamps_is_always_in_time() -> None:
    config = log_settings(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR)
    assert check(encode_batch([Record(0, -1, None, b"")] * 2), config).max_timestamp == -1
    assert check(encode_batch([Record(0, -1, None, b""), Record(1, NOW, None, b"")] * 20), config).max_timestamp == NOW


def test_a_compacted_topic_needs_keys() -> None:
    assert refusal(good(), log_settings(is_compacted=True)) is ErrorCode.INVALID_RECORD
    keyed = encode_batch([Record(0, NOW, b"AA", None)], codec=CODEC_ZSTD)
    assert check(keyed, log_settings(is_compacted=True)).record_count == 1


def test_records_are_walked_only_when_asked() -> None:
    batch = changed(RECORDS_AT + 1, b"\xff\xff")
    assert check(batch, PLAIN).record_count == 3
    assert refusal(batch, log_settings(is_strict=True)) is ErrorCode.INVALID_RECORD


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_an_error(data: bytes) -> None:
    with pytest.raises(ApiError):
        check_batch(memoryview(data), PLAIN)


@given(st.integers(0, len(good()) - 1), st.integers(1, 255))
def test_any_changed_byte_behind_the_stamps_is_found(position: int, mask: int) -> None:
    """P11: the CRC covers everything except base offset and leader epoch, which the broker sets."""
    batch = good()
    batch[position] ^= mask
    if LEADER_EPOCH_AT <= position < MAGIC_AT:
        assert check_batch(memoryview(batch), PLAIN).record_count == 3
    else:
        with pytest.raises(ApiError):
            check_batch(memoryview(batch), PLAIN)


def test_append_time_is_stamped_in_place() -> None:
    config = log_settings(is_log_append_time=True)
    batch = memoryview(good())
    stamped, header = stamp_batch(batch, read_batch_header(batch), config, now_ms=NOW + 9)
    assert is_stamped(config) and not is_stamped(PLAIN)
    assert stamped.obj is batch.obj and check_crc(stamped, 0, len(stamped))
    assert header == read_batch_header(stamped) and header.max_timestamp == NOW + 9
    assert [record.timestamp for record in read_records(stamped)] == [NOW + 9] * 3


@pytest.mark.parametrize(("name", "codec"), [("gzip", CODEC_GZIP), ("lz4", CODEC_LZ4), ("uncompressed", 0)])
def test_the_topics_codec_replaces_the_clients(name: str, codec: int) -> None:
    config = log_settings(compression_type=name)
    batch = memoryview(good(codec=CODEC_ZSTD, producer_id=7, producer_epoch=1, base_sequence=2))
    found = InspectHere().inspect(batch, read_batch_header(batch), config)
    assert found is not None
    stamped, header = stamp_batch(batch, read_batch_header(batch), config, now_ms=NOW, repacked=found.repacked)
    assert header.codec == codec and header[9:12] == (7, 1, 2) and not stamped.readonly
    assert read_records(stamped) == read_records(batch)
    again = InspectHere().inspect(stamped, header, config)
    assert again is None or again.repacked is None
    kept, _ = stamp_batch(stamped, header, config, now_ms=NOW)
    assert kept is stamped


def test_records_that_cannot_be_unpacked_cannot_be_packed_anew() -> None:
    batch = memoryview(changed(RECORDS_AT, b"\0\0\0\0\0\0", good(codec=CODEC_GZIP)))
    with pytest.raises(ApiError) as caught:
        InspectHere().inspect(batch, read_batch_header(batch), log_settings(compression_type="lz4"))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_positions_used_here_are_those_of_the_header() -> None:
    batch = changed(BASE_SEQUENCE_AT, b"\0\0\0\5", changed(PRODUCER_EPOCH_AT, b"\0\3"))
    assert read_batch_header(batch)[10:12] == (3, 5)
