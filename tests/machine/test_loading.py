"""Restoring a state machine from the record batches of its log."""

from __future__ import annotations

from ottla.machine.contract import Decision, LogRecord, Transactional
from ottla.machine.loading import BatchReader
from ottla.wire.records import CONTROL_COMMIT, Record, encode_batch, encode_control_batch, stamp_crc


class Ledger:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def apply(self, offset: int, record: LogRecord, transactional: Transactional | None) -> None:
        self.seen.append((offset, record.key, record.value, transactional))

    def apply_marker(self, offset: int, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.seen.append((offset, producer_id, producer_epoch, is_commit))

    def resume(self, now_ms: int) -> Decision:
        return Decision()


def record(key: bytes | None, value: bytes | None = b"v") -> Record:
    return Record(0, 1000, key, value)


def read_all(*batches: bytes | bytearray, start: int = 0) -> tuple[list[object], int]:
    machine = Ledger()
    data = b"".join(bytes(batch) for batch in batches)
    piece = BatchReader(lambda offset: data if offset == start else None).read_piece(start)
    assert piece is not None
    piece.apply_to(machine)
    return machine.seen, piece.end


def test_records_markers_and_transactions_come_in_order() -> None:
    seen, end = read_all(
        encode_batch([record(b"a"), record(b"b", None)], base_offset=0),
        encode_batch([record(b"c")], base_offset=2, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True),
        encode_control_batch(CONTROL_COMMIT, 9, 1, 0, 1000, base_offset=3),
    )
    assert seen == [(0, b"a", b"v", None), (1, b"b", None, None), (2, b"c", b"v", Transactional(9, 1)), (3, 9, 1, True)]
    assert end == 4


def test_records_before_the_start_are_passed_over() -> None:
    seen, end = read_all(encode_batch([record(b"a"), record(b"b")], base_offset=5), start=6)
    assert seen == [(6, b"b", b"v", None)]
    assert end == 7


def test_a_partial_batch_at_the_end_is_left_for_the_next_read() -> None:
    whole = encode_batch([record(b"a")], base_offset=0)
    torn = encode_batch([record(b"b")], base_offset=1)[:-3]
    seen, end = read_all(whole, torn)
    assert [item[1] for item in seen if isinstance(item, tuple)] == [b"a"]
    assert end == 1


def test_poisoned_batches_and_keyless_records_are_skipped() -> None:
    """C3: records that a client has written into the internal topic must not stop the coordinator."""
    poisoned = encode_batch([record(b"x", b"value")], base_offset=0)
    poisoned[61] = 0xFF  # the length of the record is nonsense now
    stamp_crc(poisoned, 0, len(poisoned))
    seen, end = read_all(poisoned, encode_batch([record(None), record(b"k")], base_offset=1))
    assert seen == [(2, b"k", b"v", None)]
    assert end == 3


def test_the_end_of_the_log_is_none() -> None:
    assert BatchReader(lambda _offset: None).read_piece(0) is None
    assert BatchReader(lambda _offset: b"").read_piece(0) is None
