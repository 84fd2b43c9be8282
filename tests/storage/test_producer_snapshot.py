"""Snapshot files: Kafka's part byte for byte, our part behind it, damage reported."""

from __future__ import annotations

from struct import pack

import pytest
from crc32c import crc32c

from ottla.base.errors import StorageError
from ottla.storage.producer_snapshot import CachedBatch, ProducerRow, decode_snapshot, encode_snapshot

BATCHES = (CachedBatch(0, 2, 10, 12, 99, 8), CachedBatch(3, 3, 13, 13, 100, -1))
ROW = ProducerRow(7, 2, 5, 100, 10, 4, -1, BATCHES)
IDLE = ProducerRow(8, 0, -1, 90, -1, 0, 55, ())
KAFKA_PART = pack(">qhiqiqiq", 7, 2, 3, 13, 0, 100, 5, 10) + pack(">qhiqiqiq", 8, 0, -1, -1, 0, 90, -1, -1)


def kafka_file(entries: bytes, count: int) -> bytes:
    body = pack(">i", count) + entries
    return pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_gives_back_all_that_was_known() -> None:
    assert decode_snapshot(encode_snapshot([ROW, IDLE], [(4, 9)]), "flights-0") == ([ROW, IDLE], [(4, 9)])


def test_kafkas_part_stands_where_kafka_reads_it() -> None:
    data = encode_snapshot([ROW, IDLE], [])
    assert data[6 : 10 + len(KAFKA_PART)] == pack(">i", 2) + KAFKA_PART


def test_a_file_of_kafka_holds_the_last_batch() -> None:
    rows, completed = decode_snapshot(kafka_file(KAFKA_PART, 2), "flights-0")
    assert completed == []
    assert rows[0] == ROW._replace(run_length=1, batches=(CachedBatch(3, 3, 13, 13, 100, -1),))
    assert rows[1] == IDLE._replace(idle_since_ms=-1)


def test_idleness_by_a_clock_of_one_boot_is_not_taken_over() -> None:
    """Version 1 of our part measured idle time with CLOCK_MONOTONIC. On another machine an idle producer would be removed immediately, or
    never."""
    data = bytearray(encode_snapshot([ROW, IDLE], [(4, 9)]))
    data[data.index(b"OTLA") + 5] = 1
    data[2:6] = pack(">I", crc32c(data[6:]))
    assert decode_snapshot(bytes(data), "flights-0") == ([ROW, IDLE._replace(idle_since_ms=-1)], [(4, 9)])


def test_a_last_batch_over_the_end_of_the_sequences() -> None:
    entry = pack(">qhiqiqiq", 7, 0, 1, 13, 3, 100, -1, -1)
    rows, _ = decode_snapshot(kafka_file(entry, 1), "flights-0")
    assert rows[0].batches[0][:4] == ((1 << 31) - 2, 1, 10, 13)


@pytest.mark.parametrize("size", range(len(encode_snapshot([ROW], [(4, 9)]))))
def test_a_cut_snapshot_is_refused(size: int) -> None:
    with pytest.raises(StorageError):
        decode_snapshot(encode_snapshot([ROW], [(4, 9)])[:size], "flights-0")


@pytest.mark.parametrize(
    "data",
    [
        kafka_file(KAFKA_PART, 3),
        kafka_file(KAFKA_PART, -1),
        kafka_file(KAFKA_PART, (1 << 31) - 1),
        b"\0\2" + kafka_file(b"", 0)[2:],
        kafka_file(KAFKA_PART + b"OTLA\0\1", 2),
        kafka_file(KAFKA_PART + pack(">4shii", b"OTLA", 1, 1, 0), 2),
        kafka_file(KAFKA_PART + pack(">4shii", b"OTLA", 1, 2, 0) + pack(">qqqi", 9, 0, 0, 0) * 2, 2),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        decode_snapshot(data, "flights-0")


def test_a_flipped_bit_is_found() -> None:
    data = bytearray(encode_snapshot([ROW], []))
    data[20] ^= 1
    with pytest.raises(StorageError, match="CRC"):
        decode_snapshot(bytes(data), "flights-0")
