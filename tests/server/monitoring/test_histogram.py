"""Histograms by bits: quantiles within a factor of two, and the window of the last minutes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.server.monitoring.histogram import WINDOW_SECONDS, Histogram, Recent, add_up, new_buckets, quantile_ns


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_right_within_a_factor_of_two(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    exact = sorted(durations)[-(-int(share * 1000) * len(durations) // 1000) - 1]
    found = quantile_ns(histogram.buckets, share)
    assert exact / 2 <= found <= max(2 * exact, 1)
    assert histogram.count == len(durations)
    assert histogram.nanoseconds == sum(durations)


def test_no_durations_have_no_quantile() -> None:
    assert quantile_ns(new_buckets(), 0.99) == 0
    assert quantile_ns(add_up([]), 0.5) == 0


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    histogram = Histogram()
    histogram.add(-5)
    assert histogram.buckets[0] == 1
    assert histogram.nanoseconds == 0


def test_what_is_older_than_the_window_is_left_out() -> None:
    recent = Recent()
    histogram = Histogram()
    histogram.add(1000)
    assert sum(recent.of(0.0, {"a": histogram.buckets})["a"]) == 1
    histogram.add(1_000_000)
    assert sum(recent.of(60.0, {"a": histogram.buckets})["a"]) == 2
    histogram.add(1_000_000)
    # The reading at 0 is now older than the window, so its counts are subtracted.
    later = recent.of(WINDOW_SECONDS + 1, {"a": histogram.buckets})["a"]
    assert sum(later) == 2
    assert later[(1000).bit_length()] == 0


def test_a_silent_window_shows_the_time_before() -> None:
    recent = Recent()
    histogram = Histogram()
    histogram.add(1000)
    recent.of(0.0, {"a": histogram.buckets})
    assert sum(recent.of(WINDOW_SECONDS * 3, {"a": histogram.buckets})["a"]) == 1


def test_frequent_readings_keep_few_snapshots() -> None:
    recent = Recent()
    buckets = new_buckets()
    for second in range(1000):
        recent.of(float(second), {"a": buckets})
    assert len(recent._snapshots) <= 33
