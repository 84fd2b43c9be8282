"""Texts that count things: the noun is singular or plural, as the number needs."""

from __future__ import annotations

from ottla.base.counted import counted


def test_one_and_other_numbers() -> None:
    found = [counted(number, "log segment") for number in (0, 1, 2, -1)]
    assert found == ["0 log segments", "1 log segment", "2 log segments", "-1 log segments"]
