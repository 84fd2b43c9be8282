"""Look-ups by time against a plain search of all records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.batch_header import LOG_APPEND_TIME, set_max_timestamp
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of

starts = st.lists(st.integers(-1, 60), min_size=1, max_size=30)


def built_from(timestamps: list[int], *, segment_bytes: int = 500) -> tuple[LogBuilder, list[int]]:
    """Returns a log with two records in each batch, and the timestamp of every record."""
    built = LogBuilder(log_settings(segment_bytes=segment_bytes, index_interval_bytes=100))
    records = []
    for timestamp in timestamps:
        built.append(batch_of(2, timestamp=timestamp))
        records += [timestamp, timestamp + 1]
    return built, records


@given(starts, st.integers(0, 70), st.data())
def test_the_first_record_not_older(timestamps: list[int], wanted: int, data: st.DataObject) -> None:
    built, records = built_from(timestamps)
    end = data.draw(st.integers(0, len(records)))
    built.log.advance_log_start(data.draw(st.integers(0, end)))
    start = built.log.log_start_offset
    expected = next(((time, offset, 0) for offset, time in enumerate(records) if time >= wanted and start <= offset), None)
    if expected is not None and expected[1] >= end:
        expected = None
    assert built.log.offset_for_timestamp(wanted, end_offset=end) == expected
    assert built.reopen().offset_for_timestamp(wanted, end_offset=end) == expected


@given(starts)
def test_the_newest_record_is_the_first_with_the_largest_timestamp(timestamps: list[int]) -> None:
    built, records = built_from(timestamps)
    largest = max(records)
    assert built.log.max_timestamp_offset() == (largest, records.index(largest), 0)
    assert built.reopen().max_timestamp_offset() == (largest, records.index(largest), 0)


@given(starts, st.data())
def test_the_newest_record_is_one_that_is_left(timestamps: list[int], data: st.DataObject) -> None:
    built, records = built_from(timestamps)
    start = data.draw(st.integers(0, len(records) - 1))
    built.log.advance_log_start(start)
    largest = max(records[start:])
    expected = (largest, records.index(largest, start), 0)
    assert built.log.max_timestamp_offset() == expected
    assert built.reopen().max_timestamp_offset() == expected


def test_an_empty_log_has_no_newest() -> None:
    built = LogBuilder()
    assert built.log.max_timestamp_offset() is None
    assert built.log.offset_for_timestamp(0, end_offset=0) is None


@pytest.mark.parametrize(("wanted", "expected"), [(49, (50, 0, 0)), (50, (50, 0, 0)), (51, None)])
def test_under_log_append_time_all_records_have_the_batchs_time(wanted: int, expected: tuple[int, int, int] | None) -> None:
    built = LogBuilder()
    batch = batch_of(3, timestamp=1)
    set_max_timestamp(batch, 0, LOG_APPEND_TIME, 50)
    built.append(batch)
    assert built.log.offset_for_timestamp(wanted, end_offset=3) == expected
