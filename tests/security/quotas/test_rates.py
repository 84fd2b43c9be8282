"""The two measures of quotas: the amount that each lets pass, and how long a client above its quota must wait."""

from __future__ import annotations

import pytest

from ottla.security.quotas.rates import THROTTLE_MS_MAX, TokenBucket, WindowedRate, Windows

LIMIT = 1000.0


def eager(windows: Windows, limit: float, piece: float, span_ms: int) -> float:
    """Returns the amount that a client sends if it sends a piece as soon as it may."""
    rate = WindowedRate(windows)
    sent, now_ms = 0.0, 0
    while now_ms < span_ms:
        rate.record(piece, now_ms)
        sent += piece
        now_ms += max(rate.throttle_ms(limit, now_ms), 1)
    return sent


@pytest.mark.parametrize("piece", [1.0, 7.0, 100.0])
def test_an_eager_client_is_held_to_its_rate_within_a_tenth(piece: float) -> None:
    windows = Windows(11, 1000)
    assert eager(windows, LIMIT, piece, 11_000) == pytest.approx(11 * LIMIT, rel=0.1)
    assert eager(windows, LIMIT, piece, 110_000) == pytest.approx(110 * LIMIT, rel=0.1)


def test_the_measurement_begins_as_if_its_windows_were_over() -> None:
    rate = WindowedRate(Windows(11, 1000))
    rate.record(20_000, 5_000)
    assert rate.measure(5_000) == 2000.0
    assert rate.throttle_ms(LIMIT, 5_000) == 10_000
    assert rate.measure(5_500) == pytest.approx(20_000 / 10.5)


def test_within_the_rate_there_is_no_wait() -> None:
    rate = WindowedRate(Windows(3, 1000))
    rate.record(2000, 0)
    assert rate.throttle_ms(LIMIT, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(LIMIT, 0) == 1


def test_what_is_older_than_all_windows_does_not_count() -> None:
    rate = WindowedRate(Windows(3, 1000))
    rate.record(9000, 0)
    rate.record(1, 1500)
    assert rate.total(2999) == 9001
    assert rate.total(3000) == 1
    assert rate.total(4500) == 0
    assert rate.measure(9999) == 0


def test_only_so_many_windows_are_kept() -> None:
    rate = WindowedRate(Windows(3, 1000))
    for second in range(4):
        rate.record(1, 1000 * second)
    assert rate.total(3000) == 3
    assert rate.measure(3000) == 1.5


def test_an_amount_may_be_taken_back() -> None:
    rate = WindowedRate(Windows(3, 1000))
    rate.record(5, 0)
    rate.record(-5, 0)
    assert rate.total(0) == 0


def test_one_window_is_enough_for_a_measurement() -> None:
    rate = WindowedRate(Windows(1, 1000))
    rate.record(1000, 0)
    assert rate.throttle_ms(LIMIT, 500) == 500


def test_a_throttle_time_fits_its_field() -> None:
    rate = WindowedRate(Windows(11, 1000))
    rate.record(1e15, 0)
    assert rate.throttle_ms(1, 0) == THROTTLE_MS_MAX
    bucket = TokenBucket(Windows(11, 1000))
    bucket.take(1e15, 1, 0)
    assert bucket.throttle_ms(1, 0) == THROTTLE_MS_MAX


def test_a_bucket_is_full_at_first_and_fills_up_again() -> None:
    bucket = TokenBucket(Windows(10, 1000))
    assert bucket.available(2, 7_000) == 20
    bucket.take(25, 2, 7_000)
    assert bucket.available(2, 7_000) == -5
    assert bucket.throttle_ms(2, 7_000) == 2500
    assert bucket.throttle_ms(2, 9_500) == 0
    assert bucket.available(2, 600_000) == 20


def test_tokens_that_are_given_back_do_not_overflow() -> None:
    bucket = TokenBucket(Windows(10, 1000))
    bucket.take(5, 1, 0)
    bucket.take(-50, 1, 0)
    assert bucket.available(1, 1) == 10
