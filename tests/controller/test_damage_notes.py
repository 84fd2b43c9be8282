"""Each line about a damaged node is logged once, and the number of remembered lines is bounded."""

from __future__ import annotations

import pytest

from ottla.controller import damage_notes
from ottla.controller.damage_notes import DamageNotes, damaged_line


def test_a_line_is_new_once() -> None:
    notes = DamageNotes()
    line = damaged_line("/a", ValueError("no JSON"))
    assert line == "/a in the metadata store is damaged and skipped: no JSON"
    assert [notes.is_new(line), notes.is_new("another"), notes.is_new(line)] == [True, True, False]


def test_the_oldest_lines_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_notes, "LINES_MAX", 2)
    notes = DamageNotes()
    assert all(map(notes.is_new, "abc"))
    assert [notes.is_new("c"), notes.is_new("a")] == [False, True]
