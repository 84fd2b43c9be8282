"""Records of `__transaction_state`: they have Kafka's bytes, and damaged ones are skipped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.machine.contract import LogRecord
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.records import read_record, state_record, tombstone
from ottla.transactions.states import DEAD, EMPTY, ONGOING, TransactionState

METADATA = TransactionMetadata("tx", 7, 3, 60_000, ONGOING, frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}), 100, 200)

LIVE_STATES = [state for state in TransactionState if state is not DEAD]


@st.composite
def metadata(draw: st.DrawFn) -> TransactionMetadata:
    i64, i16 = st.integers(-1, (1 << 63) - 1), st.integers(-1, 0x7FFF)
    state = draw(st.sampled_from(LIVE_STATES))
    partitions = frozenset(draw(st.lists(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1 << 20)), max_size=5)))
    return TransactionMetadata(
        draw(st.text(min_size=1, max_size=9)),
        draw(i64),
        draw(i16),
        draw(st.integers(0, 0x7FFFFFFF)),
        state,
        frozenset() if state is EMPTY else partitions,
        draw(i64),
        draw(i64),
        draw(i64),
        draw(i64),
        draw(i16),
        draw(st.integers(0, 2)),
    )


def logged(value: TransactionMetadata) -> LogRecord:
    """Returns the record as it is read from a log: only its bytes."""
    record = state_record(value)
    return LogRecord(record.key, record.value)


def test_a_record_that_was_just_written_is_not_decoded() -> None:
    record = state_record(METADATA)
    assert read_record(record) == read_record(logged(METADATA))
    assert record.metadata is METADATA


@given(metadata())
def test_what_is_written_is_read(value: TransactionMetadata) -> None:
    decoded = read_record(logged(value))
    assert decoded is not None and decoded.metadata == value and decoded.transactional_id == value.transactional_id


def test_bytes() -> None:
    record = state_record(METADATA)
    assert record.key == b"\0\0" + b"\0\2tx"
    assert record.value == (
        b"\0\1"  # version
        + (7).to_bytes(8) + (3).to_bytes(2) + (60_000).to_bytes(4) + b"\1"
        + b"\2" + b"\2t" + b"\3" + (0).to_bytes(4) + (1).to_bytes(4) + b"\0"
        + (200).to_bytes(8) + (100).to_bytes(8)
        + b"\0"
    )  # fmt: skip


def test_empty_has_no_partitions_at_all_as_in_kafka() -> None:
    value = state_record(METADATA._replace(state=EMPTY, partitions=frozenset())).value
    assert value is not None and value[2 + 8 + 2 + 4 + 1] == 0, "a null array"


def test_tagged_fields_are_there_only_when_they_say_something() -> None:
    plain = state_record(METADATA).value
    tagged = state_record(METADATA._replace(previous_producer_id=7, client_transaction_version=2)).value
    assert plain is not None and tagged is not None
    assert plain[-1] == 0 and tagged[len(plain) - 1 :] == b"\2" + b"\0\x08" + (7).to_bytes(8) + b"\2\2" + (2).to_bytes(2)


def test_version_0_is_read() -> None:
    value = (
        b"\0\0" + (7).to_bytes(8) + (3).to_bytes(2) + (60_000).to_bytes(4) + b"\1"
        + (1).to_bytes(4) + b"\0\1t" + (2).to_bytes(4) + (0).to_bytes(4) + (1).to_bytes(4)
        + (200).to_bytes(8) + (100).to_bytes(8)
    )  # fmt: skip
    decoded = read_record(LogRecord(b"\0\0\0\2tx", value))
    assert decoded is not None and decoded.metadata == METADATA


def test_a_tombstone_has_no_metadata() -> None:
    decoded = read_record(tombstone("tx"))
    assert decoded is not None and decoded.transactional_id == "tx" and decoded.metadata is None


def test_unknown_records_are_skipped() -> None:
    """C3: poisoned records are skipped safely on load."""
    good = logged(METADATA)
    assert good.value is not None
    state_at = 2 + 8 + 2 + 4
    strange = [
        LogRecord(b"", good.value),
        LogRecord(b"\0\1\0\2tx", good.value),
        LogRecord(good.key + b"!", good.value),
        LogRecord(good.key, b""),
        LogRecord(good.key, b"\0\2" + good.value[2:]),
        LogRecord(good.key, good.value[:state_at] + b"\x63" + good.value[state_at + 1 :]),
        LogRecord(good.key, good.value[:state_at] + b"\x06" + good.value[state_at + 1 :]),
    ]
    assert [read_record(record) for record in strange] == [None] * len(strange)


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_malformed_records_are_never_an_error(key: bytes, value: bytes) -> None:
    assert read_record(LogRecord(b"\0\0" + key, b"\0\1" + value)) is None or key


def test_records_cut_off_at_any_byte_are_skipped() -> None:
    good = logged(METADATA)
    assert good.value is not None
    assert [read_record(LogRecord(good.key, good.value[:end])) for end in range(len(good.value))] == [None] * len(good.value)
