"""Durations as ISO 8601 writes them, and where a share group may begin to read."""

from __future__ import annotations

import pytest

from ottla.base.settings.sharing import OffsetReset, duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1S", 1000),
        ("PT0.5S", 500),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.005S", 93_784_005),
        ("pt2h", 7_200_000),
        ("PT0S", 0),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("PT-1S", None),
        ("P1M", None),
        ("1S", None),
        ("", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("value", "is_valid"), [("latest", True), ("earliest", True), ("by_duration:PT1H", True), ("by_duration:", False), ("none", False)]
)
def test_where_a_group_begins(value: str, is_valid: bool) -> None:
    assert (OffsetReset()(value) == "") is is_valid
