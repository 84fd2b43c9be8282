"""The progress bar: a line that is overwritten on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from ottla.cli import progress
from ottla.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From here on stderr is a terminal. Not a fixture: pytest puts its own stderr in place again when a test begins."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0)
    monkeypatch.setattr(progress, "SHOWN_EVERY_S", 0)
    return made


def test_a_bar_fills_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with Progress("to t", 200) as bar:
        bar.add(50)
        bar.add(150)
    half, full, gone = terminal.getvalue().split("\r")[1:]
    assert half == f"to t [{'#' * 7}{' ' * 23}]  25%\x1b[K"
    assert full == f"to t [{'#' * 30}] 100%\x1b[K"
    assert gone == "\x1b[K"


def test_without_a_known_end_the_count_is_shown() -> None:
    bar = Progress("to t", 0)
    bar.add(12345)
    assert bar.line() == "to t 12,345"


@pytest.mark.parametrize("reason", ["quiet", "dumb", "no terminal", "too short"])
def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    terminal = use_terminal(monkeypatch)
    if reason == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    elif reason == "no terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif reason == "too short":
        monkeypatch.setattr(progress, "SHOWN_AFTER_S", 60)
    with Progress("to t", 10, is_quiet=reason == "quiet") as bar:
        bar.add(5)
    assert terminal.getvalue() == ""
