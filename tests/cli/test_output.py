"""One result in every form."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import Any

import pytest

from ottla.cli.output import bytes_writer, shown, shown_bytes, wants_colour
from ottla.cli.render import ottla as rendered
from ottla.cli.render.kafka import KafkaOutput, print_nothing, tabbed
from ottla.cli.render.ottla import Output, Row, cell, column, joined, json_only, table, titled, unshown, yaml


class Thing(Row):
    name: str
    size: int
    list: list[int]
    none: None = None


class Rule(Row):
    name: str
    why: str = column(width_max=14)


THINGS = [Thing("a", 1, [1, 2]), Thing("béta,x", 100, [])]
ROWS = [{"name": "a", "size": 1, "list": [1, 2], "none": None}, {"name": "béta,x", "size": 100, "list": [], "none": None}]


def _shown(capsys: pytest.CaptureFixture[str], form: str) -> str:
    Output(form).rows("things", Thing, THINGS, extra={"more": True})
    return capsys.readouterr().out


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _shown(capsys, "table").splitlines() == ["NAME    SIZE  LIST  NONE", "a          1  1,2      -", "béta,x   100  -        -"]
    assert table(titled(Thing), []) == "NAME  SIZE  LIST  NONE\n"


def test_sentences_in_a_table_go_on_in_further_lines(capsys: pytest.CaptureFixture[str]) -> None:
    whys = {"a": "no rule names it, ever", "b": "User:alice-in-wonderland may", "c": "no"}
    rows = [Rule(*pair) for pair in whys.items()]
    Output().rows("rules", Rule, rows)
    lines = ["NAME  WHY", "a     no rule names", "      it, ever", "b     User:alice-in-wonderland", "      may", "c     no"]
    assert capsys.readouterr().out.splitlines() == lines
    Output("plain").rows("rules", Rule, rows)
    assert capsys.readouterr().out.splitlines()[0] == "a\tno rule names it, ever"


def test_json_and_lines_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(_shown(capsys, "json")) == {"things": ROWS, "more": True}
    assert [json.loads(line) for line in _shown(capsys, "jsonl").splitlines()] == ROWS


def test_csv_and_plain(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.reader(io.StringIO(_shown(capsys, "csv"))))
    assert rows == [["NAME", "SIZE", "LIST", "NONE"], ["a", "1", "1,2", ""], ["béta,x", "100", "-", ""]]
    assert _shown(capsys, "plain") == "a\t1\t1,2\t-\nbéta,x\t100\t-\t-\n"


def test_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    text = _shown(capsys, "yaml")
    assert text.splitlines()[:5] == ["things:", '  - name: "a"', "    size: 1", "    list:", "      - 1"]
    assert yaml({}) == "{}\n"
    assert yaml([]) == "[]\n"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), ("", "-"), (True, "true"), (False, "false"), (0, "0"), ([], "-"), ({"a": 1}, "a=1"), ({}, "-")]
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


class Part(Row, titles=joined):
    part_id: int


class Whole(Part):
    a_name: str = json_only()
    parts: list[Part] = column("PARTS", wide=True)
    secret: str = unshown(default="s")


def test_a_row_declares_titles_keys_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    whole = Whole(1, a_name="n", parts=[Part(2)])
    assert [one.title for one in titled(Whole)] == ["PartId"]
    assert [one.title for one in titled(Whole, is_wide=True)] == ["PartId", "PARTS"]
    assert whole.as_json() == {"part_id": 1, "a_name": "n", "parts": [{"part_id": 2}]}
    assert whole.as_json(without=("parts",)) == {"part_id": 1, "a_name": "n"}
    assert (whole.secret, whole == Whole(1, "n", [Part(2)]), whole == Part(1)) == ("s", True, False)
    wrong: tuple[Any, ...]
    for wrong in ((1,), (1, "n", [], "s", "more")):
        with pytest.raises(AssertionError):
            Whole(*wrong)


def test_kafkas_tools_print_rows_and_steps_by_their_class(capsys: pytest.CaptureFixture[str]) -> None:
    output = KafkaOutput({Part: lambda rows: print(f"{len(rows)} parts"), str: print, Whole: print_nothing}, "table")
    output.rows("parts", Part, [Part(1), Part(2)])
    output.rows("wholes", Whole, [])
    output.report("a step")
    output.report(1)
    output.rows("things", Thing, THINGS[:1])
    assert capsys.readouterr().out == "2 parts\na step\nNAME\tSIZE\tLIST\tNONE\t\na   \t1   \t1,2 \tNone\t\n"
    KafkaOutput({}, "plain").rows("things", Thing, THINGS[:1])
    assert capsys.readouterr().out == "a\t1\t1,2\t-\n"
    assert (output.verdict(False), Output().verdict(False), Output().verdict(True)) == (0, 1, 0)


def test_quiet_keeps_results_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(is_quiet=True)
    output.done("done", {"x": 1})
    output.note("remark")
    output.detail("detail")
    assert capsys.readouterr() == ("", "")
    output.error("it\nbroke", "NAME")
    assert capsys.readouterr() == ("", "error: it broke\n")
    Output("json", is_quiet=True).done("done", {"x": 1})
    assert json.loads(capsys.readouterr().out) == {"x": 1}
    Output(is_verbose=True).detail("detail")
    assert capsys.readouterr().err == "detail\n"


def test_colour_is_for_terminals_and_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(Terminal(), is_forbidden=True)
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colour(io.StringIO()), "asked for, so that a log of CI has it"
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    assert not wants_colour(io.StringIO())


# What goes to a terminal cannot steer it, and what goes elsewhere is not changed


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


class ShownThing(Name):
    ids: list[str]
    of: dict[str, str]


FORGED = "mine\nyours  STABLE\tx\rz"


def test_a_name_with_line_ends_is_one_cell_of_a_table() -> None:
    """It forged rows: a group that is not there, in any state."""
    rows, columns = [ShownThing(FORGED, [FORGED], {"a": FORGED})], ShownThing.columns
    for text, lines in (
        (rendered.table(columns, rows), 2), (tabbed(ShownThing, rows), 2), (rendered.separated(columns, rows, "plain"), 1)
    ):  # fmt: skip
        assert text.count("\n") == lines and text.count("mine\\nyours  STABLE\\tx\\rz") == 3 and "\r" not in text, text
    assert rendered.separated(columns, rows, "plain").count("\t") == 2


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
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
    assert expected.replace("\\x0d", "\r").replace("\r", "\\r") in screen.written().decode(), "a cell is one line in files, too"
    assert errors.written().decode() == expected + "\n"
    records = Screen(is_terminal=is_terminal)
    bytes_writer(records)(STEERING.encode())
    assert records.written().decode() == expected


def test_rows_and_notes_keep_their_order_in_one_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout has a buffer of its own there, stderr writes each line at once."""
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(pipe, encoding="utf-8", write_through=True))
    rendered.Output("jsonl").rows("groups", Name, [Name("first")])
    rendered.Output("jsonl").note("then")
    sys.stdout.flush()
    assert [line for line in pipe.getvalue().decode().splitlines() if line] == ['{"name": "first"}', "then"]
