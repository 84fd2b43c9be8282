"""Every line of the cookbook is run: those for other tools on one broker, ours on another, which then hold the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.pages import DOCS, Block
from tests.docs.runner import PageRun

ROW = re.compile(r"^\| (.+?) (?<!\\)\| `(.+)` \|$", re.MULTILINE)
START = Block("console", {}, "$ ottla start 2> broker.log &\nREADY 127.0.0.1:9092 broker.id=0 in 1 ms\n", 1, 0, 0)
TRIM = {"version": 1, "partitions": [{"topic": "orders", "partition": 1, "offset": 2}]}
NOT_HERE = ("rpk ", "no such line")


class Row(NamedTuple):
    """A line for another tool, and ours."""

    theirs: str
    ours: str


def rows() -> list[Row]:
    found = ROW.findall((DOCS / "cookbook.md").read_text(encoding="utf-8"))
    return [Row(theirs.strip("`").replace("\\|", "|"), ours.replace("\\|", "|")) for theirs, ours in found]


def followed(directory: Path, lines: list[str]) -> str:
    """Runs the lines on a broker of their own; returns topics and records, as they are in the end."""
    directory.mkdir()
    (directory / "trim.json").write_text(json.dumps(TRIM))
    run = PageRun(directory)
    try:
        run.run(START)
        shell(run, "ottla shims install bin")
        for line in lines:
            shell(run, f'PATH="$PWD/bin:$PATH"; {line}')
        records = "ottla consume orders --from-beginning -e -q -f '%p/%o %k=%s %h\\n' | sort"
        return shell(run, f"ottla topic list; ottla topic config orders; ottla group list; {records}")
    finally:
        run.close()


def shell(run: PageRun, line: str) -> str:
    """What a line writes on stdout; raises `PageFailed` with the line if its exit code is not 0."""
    run.run(Block("sh", {}, f"({line}) > printed\n", 1, 0, 0))
    return (run.directory / "printed").read_text()


def test_the_lines_of_both_columns_do_the_same(tmp_path: Path) -> None:
    assert shutil.which("kcat"), "the lines of kcat cannot be run"
    theirs = followed(tmp_path / "theirs", [row.ours if row.theirs.startswith(NOT_HERE) else row.theirs for row in rows()])
    ours = followed(tmp_path / "ours", [row.ours for row in rows()])
    assert theirs == ours
    assert "c=3 source=shop" in ours


def test_the_page_has_lines_of_every_tool() -> None:
    tools = {tool for row in rows() for tool in re.findall(r"\b(?:kafka-[a-z-]+\.sh|kcat|rpk)(?= )", row.theirs)}
    assert len(rows()) >= 35 and len(tools) >= 14


def test_a_line_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code 1"):
        followed(tmp_path / "wrong", ["ottla topic describe nothing"])
