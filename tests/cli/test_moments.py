"""Dates, durations and other points in time."""

from __future__ import annotations

import pytest

from ottla.analysis.moments import format_ms
from ottla.cli.command import UsageError
from ottla.cli.moments import parse_datetime_ms, parse_duration_ms, parse_moment_ms

NOON_MS = 1_704_110_400_000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2024-01-01T12:00:00.000", NOON_MS),
        ("2024-01-01T12:00:00Z", NOON_MS),
        ("2024-01-01T13:00:00+01:00", NOON_MS),
        ("2024-01-01T13:00:00.250+0100", NOON_MS + 250),
        ("2024-01-01", NOON_MS - 12 * 3_600_000),
        ("1969-12-31T23:59:59", -1000),
        ("2024-01-01T12:00:00.0005", NOON_MS + 1),
    ],
)
def test_dates_are_utc_unless_they_have_a_zone(text: str, wanted: int) -> None:
    assert parse_datetime_ms(text) == wanted


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "2024-13-01T00:00:00", "2024-01-01T25:00:00", "1700000000000"])
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(UsageError):
        parse_datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("-PT1M", -60_000), ("p2w", 1_209_600_000)],
)
def test_durations(text: str, wanted: int) -> None:
    assert parse_duration_ms(text) == wanted


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "P1H", "PT1", "P1DT"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_ms(text)


@pytest.mark.parametrize(("text", "wanted"), [("-1h", 6_400_000), ("@-10s", 9_990_000), ("-5 ms", 9_999_995), ("@123", 123), ("123", 123)])
def test_moments_before_now(text: str, wanted: int) -> None:
    assert parse_moment_ms(text, now=10_000_000) == wanted


def test_times_for_people() -> None:
    assert format_ms(NOON_MS + 7) == "2024-01-01T12:00:00.007Z"
    assert format_ms(-1) is None and format_ms(2**62) == str(2**62)
