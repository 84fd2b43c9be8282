"""One result in every form."""

from __future__ import annotations

import csv
import io
import json

import pytest

from ottla.cli.output import Output, cell, table, wants_colour, yaml

ROWS = [{"name": "a", "size": 1, "list": [1, 2], "none": None}, {"name": "béta,x", "size": 100, "list": [], "none": None}]
COLUMNS = (("NAME", "name"), ("SIZE", "size"), ("LIST", "list"), ("NONE", "none"))


def _shown(capsys: pytest.CaptureFixture[str], form: str) -> str:
    Output(form).show("things", ROWS, COLUMNS, extra={"more": True})
    return capsys.readouterr().out


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _shown(capsys, "table").splitlines() == ["NAME    SIZE  LIST  NONE", "a          1  1,2      -", "béta,x   100  -        -"]
    assert table([], COLUMNS) == "NAME  SIZE  LIST  NONE\n"


def test_sentences_in_a_table_go_on_in_further_lines(capsys: pytest.CaptureFixture[str]) -> None:
    whys = {"a": "no rule names it, ever", "b": "User:alice-in-wonderland may", "c": "no"}
    rows = [{"name": name, "why": why} for name, why in whys.items()]
    columns = (("NAME", "name"), ("WHY", "why"))
    Output().show("rules", rows, columns, widths_max={"why": 14})
    lines = ["NAME  WHY", "a     no rule names", "      it, ever", "b     User:alice-in-wonderland", "      may", "c     no"]
    assert capsys.readouterr().out.splitlines() == lines
    Output("plain").show("rules", rows, columns, widths_max={"why": 14})
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
