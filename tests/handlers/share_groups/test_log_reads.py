"""How share groups read the log: the batches in a range of bytes, which of them a member gets, aborted transactions, and the offset at
which a group begins."""

from __future__ import annotations

import pytest

from ottla.handlers.share_groups.log_reads import LogWalk, find_start
from ottla.storage.file_slice import BytesFile, FileSlice, SharedFile
from ottla.wire.batch_header import iter_batches, set_base_offset
from ottla.wire.records import CONTROL_ABORT, CONTROL_COMMIT, Record, encode_batch, encode_control_batch
from tests.handlers.records_world import NOW_MS
from tests.handlers.share_world import ShareWorld


def slice_of(*batches: bytes | bytearray, cut: int = 0) -> FileSlice:
    data, offset = bytearray(), 0
    for batch in batches:
        part = bytearray(batch)
        set_base_offset(part, 0, offset)
        (header,) = [header for _, header in iter_batches(part)]
        offset = header.next_offset
        data += part
    whole = bytes(data[: len(data) - cut])
    return FileSlice(SharedFile(BytesFile(whole, "x")), 0, len(whole))


def plain(size: int, *, width: int = 10, producer_id: int = -1) -> bytes:
    records = [Record(0, NOW_MS, None, b"v" * width) for _ in range(size)]
    if producer_id < 0:
        return bytes(encode_batch(records))
    return bytes(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True))


def marker(kind: int, producer_id: int) -> bytes:
    return bytes(encode_control_batch(kind, producer_id, 0, 0, NOW_MS))


@pytest.mark.parametrize("width", [1, 100, 9000])
def test_every_batch_is_found(width: int) -> None:
    walk = LogWalk(slice_of(*[plain(3, width=width)] * 9))
    assert list(walk) == [(base, base + 2, True) for base in range(0, 27, 3)]


def test_a_batch_that_is_cut_off_is_not_there() -> None:
    assert list(LogWalk(slice_of(plain(3), plain(3), cut=1))) == [(0, 2, True)]
    assert list(LogWalk(slice_of(plain(1), plain(1), cut=50))) == [(0, 0, True)]


def test_the_part_that_holds_some_offsets() -> None:
    found = slice_of(plain(3), plain(4), plain(5))
    walk = LogWalk(found)
    list(walk)
    for first, last, bases in [(0, 2, [0]), (1, 3, [0, 3]), (4, 6, [3]), (3, 11, [3, 7]), (0, 11, [0, 3, 7]), (8, 99, [7])]:
        assert [header.base_offset for _, header in iter_batches(walk.piece(first, last).read())] == bases


def test_control_batches_are_never_delivered() -> None:
    assert [may for _, _, may in LogWalk(slice_of(plain(1, producer_id=7), marker(CONTROL_COMMIT, 7), plain(1)))] == [True, False, True]


def test_a_transaction_is_aborted_from_its_first_offset_to_its_marker() -> None:
    found = slice_of(
        plain(2, producer_id=7),  # 0: an earlier transaction, which is committed
        marker(CONTROL_COMMIT, 7),  # 2
        plain(2, producer_id=7),  # 3: aborted
        plain(2, producer_id=8),  # 5
        plain(2),  # 7
        marker(CONTROL_ABORT, 7),  # 9
        plain(2, producer_id=7),  # 10
        marker(CONTROL_COMMIT, 8),  # 12
    )
    assert [base for base, _, may in LogWalk(found, [(7, 3)]) if may] == [0, 5, 7, 10]


def test_a_marker_ends_what_began_before_the_slice() -> None:
    found = slice_of(marker(CONTROL_ABORT, 7), plain(2, producer_id=7))
    assert [may for _, _, may in LogWalk(found, [(7, 0)])] == [False, True]


def test_where_a_group_begins() -> None:
    world = ShareWorld()
    world.append(10, 10)
    partition = world.partitions[0]
    partition.require_leading().delete_records(4)
    assert find_start(partition, "earliest", NOW_MS) == 4
    assert find_start(partition, "latest", NOW_MS) == 20
    assert find_start(partition, "by_duration:PT1H", NOW_MS) == 4
    assert find_start(partition, "by_duration:PT1H", NOW_MS + 7_200_000) == 20
