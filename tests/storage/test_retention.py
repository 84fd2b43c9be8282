"""Which segments expire: by size, by time, below the log's start; never at the high watermark (I7)."""

from __future__ import annotations

import pytest

from ottla.base.log_config import LogConfig
from ottla.storage.retention import count_expired
from tests.fakes.log_settings import log_settings
from tests.storage.log_builder import LogBuilder, batch_of

SIZE = len(batch_of())


def built(config: LogConfig) -> LogBuilder:
    """Returns a log of five segments with two batches each, with timestamps 1000, 1010 ... 1090."""
    made = LogBuilder(config)
    made.append_many(10)
    assert [segment.base_offset for segment in made.log.segments] == [0, 2, 4, 6, 8]
    return made


def expired(made: LogBuilder, *, now_ms: int = 0, high_watermark: int = 10, log_start_offset: int = 0) -> int:
    return count_expired(
        made.log.segments,
        made.log.config,
        now_ms=now_ms,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        log_end_offset=made.log.log_end_offset,
    )


@pytest.mark.parametrize(("now_ms", "count"), [(1_100, 0), (1_110, 0), (1_111, 1), (1_130, 1), (1_131, 2), (1_190, 4), (1_191, 5)])
def test_by_time_of_the_newest_record_in_the_segment(now_ms: int, count: int) -> None:
    assert expired(built(log_settings(segment_bytes=2 * SIZE, retention_ms=100)), now_ms=now_ms) == count


@pytest.mark.parametrize(("kept", "count"), [(10, 0), (9, 0), (8, 1), (7, 1), (4, 3), (0, 5)])
def test_by_size_as_long_as_enough_remains(kept: int, count: int) -> None:
    config = log_settings(segment_bytes=2 * SIZE, retention_ms=-1, retention_bytes=kept * SIZE)
    assert expired(built(config)) == count


@pytest.mark.parametrize(("start", "count"), [(0, 0), (1, 0), (2, 1), (3, 1), (8, 4), (10, 4)])
def test_below_the_start_whatever_the_policy(start: int, count: int) -> None:
    config = log_settings(segment_bytes=2 * SIZE, retention_ms=1, is_deleted=False, is_compacted=True)
    assert expired(built(config), now_ms=1 << 50, log_start_offset=start) == count


@pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (1, 0), (2, 1), (9, 4), (10, 5)])
def test_never_at_or_above_the_high_watermark(high_watermark: int, count: int) -> None:
    config = log_settings(segment_bytes=2 * SIZE, retention_ms=1)
    assert expired(built(config), now_ms=1 << 50, high_watermark=high_watermark) == count


def test_unlimited_is_unlimited() -> None:
    assert expired(built(log_settings(segment_bytes=2 * SIZE, retention_ms=-1)), now_ms=1 << 60) == 0


def test_records_without_timestamps_count_from_when_they_were_first_seen() -> None:
    made = LogBuilder(log_settings(segment_bytes=2 * SIZE, retention_ms=100))
    for _ in range(4):
        made.append(batch_of(timestamp=-1))
    assert expired(made, now_ms=made.now_ms + 100, high_watermark=4) == 0
    assert expired(made, now_ms=made.now_ms + 101, high_watermark=4) == 2


def test_an_empty_active_segment_stays() -> None:
    made = built(log_settings(segment_bytes=2 * SIZE, retention_ms=1))
    made.log.roll()
    assert expired(made, now_ms=1 << 50) == 5
