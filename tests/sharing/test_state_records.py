"""Records of `__share_group_state`: they have the bytes that Apache Kafka 4.3 writes, and unknown records are skipped."""

from __future__ import annotations

import pytest

from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.machine.contract import LogRecord
from ottla.sharing.state_records import Snapshot, StateUpdate, read_record, snapshot_record, tombstone, update_record

KEY = SharePartitionKey("g", bytes(range(16)), 3)
BATCHES = (StateBatch(5, 6, 0, 1), StateBatch(7, 7, 2, 1))
STATE = ShareState(2, 3, 5, 1, BATCHES)
KEY_BYTES = bytes.fromhex("000167") + bytes(range(16)) + bytes.fromhex("00000003")


def plain(record: LogRecord) -> LogRecord:
    """Returns the record as it is read from the log."""
    return LogRecord(record.key, record.value)


def test_a_snapshot_comes_back_from_its_bytes() -> None:
    snapshot = Snapshot(4, STATE, 1_000, 2_000)
    record = snapshot_record(KEY, snapshot)
    assert record.key == b"\0\0" + KEY_BYTES
    read = read_record(plain(record))
    assert read == (KEY, snapshot) == read_record(record)


def test_an_update_comes_back_without_its_state_epoch() -> None:
    record = update_record(KEY, StateUpdate(4, STATE))
    assert record.key == b"\0\1" + KEY_BYTES
    assert read_record(plain(record)) == (KEY, StateUpdate(4, STATE._replace(state_epoch=0)))


def test_the_count_of_complete_deliveries_is_a_tag_that_may_be_missing() -> None:
    unknown = STATE._replace(state_epoch=0, delivery_complete_count=-1)
    with_count, without = (update_record(KEY, StateUpdate(4, state)) for state in (STATE, unknown))
    assert with_count.value is not None and without.value is not None
    assert len(with_count.value) == len(without.value) + 2 + 4  # tag, size, value
    assert read_record(plain(without)) == (KEY, StateUpdate(4, unknown))


def test_the_end_of_a_share_partition() -> None:
    assert tombstone(KEY).value is None
    assert read_record(plain(tombstone(KEY))) == (KEY, None)


@pytest.mark.parametrize(
    "record",
    [
        LogRecord(b"", b""),
        LogRecord(b"\0", b""),
        LogRecord(b"\0\2" + KEY_BYTES, b"\0\0"),
        LogRecord(b"\0\0" + KEY_BYTES[:-1], b"\0\0"),
        LogRecord(b"\0\0" + KEY_BYTES + b"x", b"\0\0"),
        LogRecord(b"\0\0" + KEY_BYTES, b""),
        LogRecord(b"\0\0" + KEY_BYTES, b"\0\1"),
        LogRecord(b"\0\0" + KEY_BYTES, b"\0\0\0"),
        LogRecord(b"\0\1" + KEY_BYTES, None),
    ],
)
def test_foreign_records_are_skipped(record: LogRecord) -> None:
    assert read_record(record) is None
