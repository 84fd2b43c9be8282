"""The 61 bytes of a batch header: every field is in its place, changes by the broker keep the CRC valid, and iteration over batches stops
at the end of the bytes."""

from __future__ import annotations

import pytest

from ottla.base.errors import WireError
from ottla.wire.batch_header import (
    BATCH_OVERHEAD,
    CREATE_TIME,
    HEADER,
    LOG_APPEND_TIME,
    BatchHeader,
    check_crc,
    iter_batches,
    legacy_magic,
    read_batch_header,
    record_section,
    set_attributes,
    set_base_offset,
    set_leader_epoch,
    set_max_timestamp,
    stamp_producer,
)
from ottla.wire.records import CODEC_LZ4, Record, encode_batch, read_records


def batch_of(count: int = 3, **fields: int) -> bytearray:
    return encode_batch([Record(0, 1000 + n, b"k", b"value %d" % n) for n in range(count)], **fields)  # type: ignore[arg-type]


def test_every_field_is_read_from_its_place() -> None:
    values = (1 << 40, 77, 5, 2, 0xFEDCBA98, 0x7B, 9, 1_700_000_000_000, 1_700_000_000_009, 1 << 50, 300, 70_000, 10)
    raw = b"xyz" + HEADER.pack(*values)
    header = read_batch_header(raw, 3)
    assert header == BatchHeader(*values)
    assert type(header) is BatchHeader
    assert (header.last_offset, header.next_offset, header.size_bytes) == ((1 << 40) + 9, (1 << 40) + 10, 89)
    assert (header.codec, header.timestamp_type) == (3, LOG_APPEND_TIME)
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon_ms == header.base_timestamp
    plain = header._replace(attributes=0)
    assert (plain.codec, plain.timestamp_type, plain.delete_horizon_ms) == (0, CREATE_TIME, None)
    assert not (plain.is_transactional or plain.is_control or plain.has_delete_horizon)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (0, 0, 0), (7, 3, 10), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6)],
)
def test_sequences_wrap(base: int, delta: int, last: int) -> None:
    header = read_batch_header(batch_of())._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("size", [0, 1, 11, 16, 17, 60])
def test_a_short_header_is_refused(size: int) -> None:
    raw = bytes(batch_of())
    with pytest.raises(WireError, match=f"only {size} are left"):
        read_batch_header(raw[:size])
    with pytest.raises(WireError):
        read_batch_header(raw, len(raw) - size)


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_a_length_below_the_header_is_refused(length: int) -> None:
    raw = batch_of()
    raw[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(WireError, match="shorter than its own header"):
        read_batch_header(raw)
    with pytest.raises(WireError):
        list(iter_batches(raw))


def test_the_crc_covers_everything_behind_it() -> None:
    raw = batch_of()
    assert check_crc(raw, 0, len(raw))
    assert check_crc(b"...." + memoryview(raw).tobytes() + b"....", 4, len(raw))
    assert not check_crc(raw, 0, len(raw) + 1)
    assert not check_crc(raw, 0, len(raw) - 1)
    assert not check_crc(raw, 0, 60)
    assert not check_crc(raw, 1, len(raw))
    for position in range(17, len(raw)):
        raw[position] ^= 0x10
        assert not check_crc(raw, 0, len(raw)), position
        raw[position] ^= 0x10
    other = batch_of(4)
    raw[17:21] = other[17:21]
    assert not check_crc(raw, 0, len(raw)), "the CRC of other bytes"


def test_offset_and_epoch_are_stamped_without_a_new_crc() -> None:
    raw = bytearray(b"##") + batch_of()
    before = read_batch_header(raw, 2)
    set_base_offset(raw, 2, 1 << 45)
    set_leader_epoch(memoryview(raw), 2, 17)
    assert read_batch_header(raw, 2) == before._replace(base_offset=1 << 45, partition_leader_epoch=17)
    assert raw[:2] == b"##"
    assert check_crc(raw, 2, before.size_bytes)
    assert [record.offset for record in read_records(raw[2:])] == [(1 << 45) + n for n in range(3)]


def test_log_append_time_is_stamped_with_a_new_crc() -> None:
    raw = bytearray(b"##") + batch_of() + b"tail"
    size = read_batch_header(raw, 2).size_bytes
    set_max_timestamp(raw, 2, LOG_APPEND_TIME, 5555)
    header = read_batch_header(raw, 2)
    assert (header.max_timestamp, header.timestamp_type, header.base_timestamp) == (5555, LOG_APPEND_TIME, 1000)
    assert check_crc(raw, 2, size)
    assert {record.timestamp for record in read_records(raw[2:])} == {5555}
    set_max_timestamp(raw, 2, CREATE_TIME, 1002)
    assert check_crc(raw, 2, size)
    assert raw[2 : 2 + size] == batch_of()
    set_attributes(raw, 2, 0x10)
    assert read_batch_header(raw, 2).is_transactional
    assert check_crc(raw, 2, size)
    assert raw[-4:] == b"tail"


def test_batches_are_walked_up_to_the_cut() -> None:
    batches = [batch_of(1, base_offset=0), batch_of(5, base_offset=1), batch_of(2, base_offset=6, codec=CODEC_LZ4)]
    whole = b"".join(batches)
    ends = [len(batches[0]), len(batches[0]) + len(batches[1]), len(whole)]
    for cut in range(len(whole) + 1):
        seen = [(position, header.base_offset) for position, header in iter_batches(memoryview(whole)[:cut])]
        assert seen == [(0, 0), (ends[0], 1), (ends[1], 6)][: sum(end <= cut for end in ends)]
    assert [position for position, _ in iter_batches(whole, ends[0])] == ends[:2]


def test_old_message_sets_are_recognised() -> None:
    raw = batch_of()
    assert legacy_magic(raw) is None
    for magic in (0, 1):
        message = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(17)
        assert legacy_magic(message) == magic
        assert legacy_magic(b"##" + message, 2) == magic
    assert legacy_magic(bytes(100)) is None, "zeros are no message set: the shortest message has 14 bytes"
    raw[16] = 3
    assert legacy_magic(raw) is None
    assert legacy_magic(b"") is None
    assert legacy_magic(raw[:16]) is None


def test_records_of_another_magic_or_a_cut_batch_are_not_read() -> None:
    raw = batch_of()
    with pytest.raises(WireError, match="cut off"):
        read_records(raw[:-1])
    for magic in (0, 1, 3, 255):
        raw[16] = magic
        with pytest.raises(WireError, match="magic"):
            read_records(raw)


def test_an_uncompressed_section_is_a_slice() -> None:
    raw = batch_of()
    section = record_section(raw, read_batch_header(raw))
    assert isinstance(section, memoryview)
    assert section.obj is raw
    assert section == memoryview(raw)[BATCH_OVERHEAD:]


def test_a_producers_identity_is_stamped_with_a_new_crc() -> None:
    records = [Record(0, 1_000, b"k", b"v", ()), Record(0, 1_001, None, b"w", ())]
    raw = bytearray(b"..") + encode_batch(records, codec=CODEC_LZ4)
    stamp_producer(raw, 2, len(raw) - 2, producer_id=9, producer_epoch=4, base_sequence=17)
    assert raw[2:] == encode_batch(records, codec=CODEC_LZ4, producer_id=9, producer_epoch=4, base_sequence=17, is_transactional=True)
