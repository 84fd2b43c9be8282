"""The README's blocks are run as those of the docs are, and its terminal recording shows what the commands print."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import DOCS, ROOT, Block, blocks_of
from tests.docs.runner import PageRun, normal
from tools import recording

README = ROOT / "README.md"
TRANSCRIPT, PICTURE = DOCS / "assets" / "recording.txt", DOCS / "assets" / "recording.svg"


def six_line_test() -> str:
    """The first test on the page, which is also the one in the recording."""
    return next(block.text for block in blocks_of(README) if block.text.startswith("def test_"))


def unmeasured(printed: str) -> str:
    """Without numbers, and of the checks only name and verdict: their details differ from run to run."""
    return re.sub(r"\d+(\.\d+)?", "N", re.sub(r"(\b(pass|fail|unclear)\b).*", r"\1", normal(printed)))


def test_the_readme_can_be_followed(tmp_path: Path) -> None:
    run = PageRun(tmp_path)
    try:
        for block in blocks_of(README):
            if block.language in ("python", "console", "sh") and "needs" not in block.attributes:
                run.run(block)
    finally:
        run.close()


def test_the_recording_shows_what_the_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = TRANSCRIPT.read_text(encoding="utf-8")
    (tmp_path / "test_orders.py").write_text(six_line_test())
    run = PageRun(tmp_path)
    try:
        with monkeypatch.context() as patch:
            patch.setenv("OTTLA_REWRITE", "1")  # compared below, with less exactness than a page is
            printed = run.run(Block("console", {}, recorded, 1, 0, 0))
    finally:
        run.close()
    if os.environ.get("OTTLA_REWRITE"):
        TRANSCRIPT.write_text(printed, encoding="utf-8")
        PICTURE.write_text(recording.svg(printed), encoding="utf-8")
    assert unmeasured(printed) == unmeasured(TRANSCRIPT.read_text(encoding="utf-8"))


def test_the_picture_is_made_of_the_transcript() -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert picture == recording.svg(TRANSCRIPT.read_text(encoding="utf-8"))
    drawn = ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert drawn[0] == "$ ottla start 2> broker.log &"
    assert drawn[1].startswith("READY ")
    assert max(map(len, drawn)) <= recording.COLUMNS


def test_long_lines_are_broken_and_what_is_printed_is_escaped() -> None:
    drawn = recording.screen("$ a\n" + "x" * 200 + "\n")
    assert [len(line.text) for line in drawn] == [3, 96, 96, 8]
    assert "&lt;b&gt;" in recording.svg("<b>\n")


def test_the_first_test_of_the_readme_has_six_lines() -> None:
    assert len(six_line_test().splitlines()) == 6


def test_the_recording_is_never_empty() -> None:
    """A page, a preview and a picture of it begin with the recording's first moment."""
    begins = re.findall(r"@keyframes \w+ \{ from \{ opacity: ([\d.]+) \} \}", recording.STYLE)
    assert [float(opacity) >= 0.3 for opacity in begins] == [True]
