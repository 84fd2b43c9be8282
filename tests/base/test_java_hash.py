"""Java's string hash, against values that a JVM gives."""

from __future__ import annotations

import pytest

from ottla.base.java_hash import java_hash, java_partition


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("group", 98629247), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)],
)
def test_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_negative_hash_is_placed_by_its_absolute_value() -> None:
    assert java_hash("orders") == -1008770331
    assert java_partition("orders", 50) == 31


def test_the_hash_without_a_positive_twin_counts_as_zero() -> None:
    assert java_partition("polygenelubricants", 50) == 0
