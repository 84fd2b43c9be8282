"""One result in every form."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from ottla.cli.output import wants_colour
from ottla.cli.render.kafka import KafkaOutput, print_nothing
from ottla.cli.render.ottla import Output, cell, table, yaml
from ottla.cli.render.rows import Row, column, joined, json_only, titled, unshown


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
