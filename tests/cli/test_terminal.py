"""What goes to a terminal cannot steer it, and what goes elsewhere is not changed."""

from __future__ import annotations

import io
import sys

import pytest

from ottla.cli.render import ottla as rendered
from ottla.cli.render.kafka import tabbed
from ottla.cli.render.rows import Row
from ottla.cli.terminal import bytes_writer, shown, shown_bytes

STEERING = "a\x1b]0;title\x07b\x9b2Jc\u202egnp.exe\u2066d\r\x7fe"


class Screen(io.TextIOWrapper):
    """A stream that is, or is not, a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding="utf-8", newline="\n")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def written(self) -> bytes:
        self.flush()
        return self.raw_bytes.getvalue()


def test_what_steers_a_terminal_is_escaped() -> None:
    assert shown(STEERING) == "a\\x1b]0;title\\x07b\\x9b2Jc\\u202egnp.exe\\u2066d\\x0d\\x7fe"
    assert shown("a\tb\nprix: 5 \u20ac\n") == "a\tb\nprix: 5 \u20ac\n"


class Name(Row):
    name: str


class Thing(Name):
    ids: list[str]
    of: dict[str, str]


FORGED = "mine\nyours  STABLE\tx"


def test_a_name_with_line_ends_is_one_cell_of_a_table() -> None:
    """It forged rows: a group that is not there, in any state."""
    rows, columns = [Thing(FORGED, [FORGED], {"a": FORGED})], Thing.columns
    for text, lines in (
        (rendered.table(columns, rows), 2), (tabbed(Thing, rows), 2), (rendered.separated(columns, rows, "plain"), 1)
    ):  # fmt: skip
        assert text.count("\n") == lines and text.count("mine\\nyours  STABLE\\tx") == 3, text
    assert rendered.separated(columns, rows, "plain").count("\t") == 2


@pytest.mark.parametrize("end", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_what_else_ends_a_line_is_escaped_on_a_terminal(end: str) -> None:
    table = rendered.table(Name.columns, [Name(f"mine{end}yours")])
    assert shown(table).splitlines()[1:] == [f"mine{shown(end)}yours"]


HIDDEN = "mine\x1b[8m\x1b[30;40mend\x1b[0m"


@pytest.mark.parametrize("has_colour", [True, False])
def test_colours_are_ours_only(monkeypatch: pytest.MonkeyPatch, has_colour: bool) -> None:
    """A name with a colour hid, or forged, what stood behind it."""
    screen, errors = Screen(is_terminal=True), Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shell = rendered.Output("table", has_colour=has_colour)
    shell.rows("groups", Name, [Name(HIDDEN)])
    shell.error(HIDDEN)
    shell.done(HIDDEN, {})
    heading, start = ("\x1b[1mNAME\x1b[0m", "\x1b[31merror\x1b[0m: ") if has_colour else ("NAME", "error: ")
    assert screen.written().decode() == f"{heading}\n{shown(HIDDEN)}\n{shown(HIDDEN)}\n"
    assert errors.written().decode() == f"{start}{shown(HIDDEN)}\n"
    assert "\x1b" not in shown(HIDDEN)


@pytest.mark.parametrize("letter", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u180e", "\U000e0061"])
def test_characters_of_no_width_are_shown(letter: str) -> None:
    """A name with one looks like the name without it."""
    assert shown(f"pay{letter}ments") != f"pay{letter}ments" and shown(f"pay{letter}ments").isascii()


def test_emoji_and_scripts_that_need_joiners_stay() -> None:
    assert shown("\U0001f469\u200d\U0001f4bb \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") == (
        "\U0001f469\u200d\U0001f4bb \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )


def test_records_that_are_no_text_are_shown_all_the_same() -> None:
    assert shown_bytes(b"\xff\x1b[2J\n") == b"\\xff\\x1b[2J\n"


@pytest.mark.parametrize(("is_terminal", "expected"), [(True, shown(STEERING)), (False, STEERING)])
def test_only_a_terminal_gets_escapes(monkeypatch: pytest.MonkeyPatch, is_terminal: bool, expected: str) -> None:
    screen, errors = Screen(is_terminal=is_terminal), Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", errors)
    rendered.Output("table").rows("groups", Name, [Name(STEERING)])
    rendered.Output("table").note(STEERING)
    assert expected in screen.written().decode()
    assert errors.written().decode() == expected + "\n"
    records = Screen(is_terminal=is_terminal)
    bytes_writer(records)(STEERING.encode())
    assert records.written().decode() == expected
