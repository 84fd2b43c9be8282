"""Samples of keys and changes of records keep offsets, timestamps, producers and batches."""

from __future__ import annotations

from ottla.base.types import TopicPartition
from ottla.cloning.record_change import RecordChange
from ottla.wire.batch_header import iter_batches
from ottla.wire.compression import CODEC_ZSTD
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, encode_control_batch, read_records

PARTITION = TopicPartition("orders", 3)


def batch(first: int, count: int, **options: object) -> bytes:
    records = [Record(0, 1000 + number, b"key-%d" % number, b"value-%d" % number, (("a", b"b"),)) for number in range(first, first + count)]
    return bytes(encode_batch(records, base_offset=first, leader_epoch=7, **options))  # type: ignore[arg-type]


def records_of(data: memoryview) -> list[Record]:
    return [record for position, header in iter_batches(data) for record in read_records(data[position : position + header.size_bytes])]


def test_a_value_is_replaced_and_all_else_stays() -> None:
    data = batch(100, 10, codec=CODEC_ZSTD, producer_id=5, producer_epoch=2, base_sequence=40, is_transactional=True)
    change = RecordChange(transform=lambda partition, record: record._replace(offset=0, value=b"hidden" if partition == PARTITION else b""))
    changed = change.apply(PARTITION, memoryview(data))
    ((_, before),) = iter_batches(data)
    ((_, after),) = iter_batches(changed)
    assert after._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0)
    assert records_of(changed) == [record._replace(value=b"hidden") for record in records_of(memoryview(data))]


def test_a_record_is_left_out_and_a_batch_without_records_is_a_header() -> None:
    data = batch(0, 4) + batch(4, 4)
    change = RecordChange(transform=lambda _, record: record if record.offset == 2 else None)
    changed = change.apply(PARTITION, memoryview(data))
    headers = [header for _, header in iter_batches(changed)]
    assert [(header.base_offset, header.last_offset, header.record_count) for header in headers] == [(0, 3, 1), (4, 7, 0)]
    assert [record.offset for record in records_of(changed)] == [2]


def test_a_marker_is_not_changed() -> None:
    data = bytes(encode_control_batch(CONTROL_COMMIT, 5, 2, 1, 1000, base_offset=9))
    assert bytes(RecordChange(transform=lambda *_: None).apply(PARTITION, memoryview(data))) == data


def test_a_sample_has_all_records_of_its_keys() -> None:
    """About a tenth of the keys, the same in each batch and for each clone, whatever the order."""
    first, second = batch(0, 1000), batch(0, 1000)
    kept = [{record.key for record in records_of(RecordChange(0.1).apply(PARTITION, memoryview(data)))} for data in (first, second)]
    assert kept[0] == kept[1] and 60 < len(kept[0]) < 140
    assert kept[0] < {record.key for record in records_of(RecordChange(0.5).apply(PARTITION, memoryview(first)))}
