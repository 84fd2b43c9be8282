"""Every code block of the docs is run, page by page; what cannot be run is named here with the reason.

`OTTLA_REWRITE=1` puts what transcripts say today into the pages; read the diff.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla.base.config import load
from ottla.cli.broker.service import unit_text
from tests.docs.pages import DOCS, ROOT, Block, blocks_of, pages
from tests.docs.runner import PageFailed, PageRun, normal, transcript_of

RUNNABLE = ("python", "sh", "console")
CHECKED = ("properties", "toml", "yaml", "ini", "text", "json", "mermaid", "java")
"""Languages that are not run: settings are loaded below, the others have tests of their own or are for looking at."""

PROGRAMS = {"curl", "kcat"}
"""Blocks that need one of these programs are run where it is installed."""
PACKAGES = {"fastapi"}
"""Blocks that need one of these packages likewise."""

NEVER = {
    "network": "installs packages",
    "docker": "builds and runs an image",
    "systemd": "changes the machine's services",
    "kafka-clients": "Java's client is not a Python package",
    "spark": "run by tests/spark_jobs/test_tutorial.py and test_features.py, where Spark is",
}
"""Blocks that need one of these are never run by this test."""


COLUMNS_MAX = 88
AS_THEY_ARE = ("json", "yaml", "ini")


def is_run(block: Block) -> bool:
    needed = block.attributes.get("needs")
    is_there = needed is None or (needed in PROGRAMS and shutil.which(needed)) or (needed in PACKAGES and find_spec(needed))
    return block.language in RUNNABLE and bool(is_there)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = [block for block in blocks_of(page) if is_run(block)]
    run = PageRun(tmp_path)
    try:
        made = [run.run(block) for block in blocks]
    finally:
        run.close()
    for block, new in reversed(list(zip(blocks, made, strict=True))):
        text = text[: block.start] + new + text[block.end :]
    if os.environ.get("OTTLA_REWRITE") and normal(text) != normal(page.read_text(encoding="utf-8")):
        page.write_text(text, encoding="utf-8")
    assert normal(text) == normal(page.read_text(encoding="utf-8"))


def test_what_is_not_run_says_what_it_needs() -> None:
    for page in pages():
        for block in blocks_of(page):
            where = f"{page.name}, line {block.line}"
            assert block.language in (*RUNNABLE, *CHECKED), f"{where}: no language, or one that is not checked"
            assert set(block.attributes) <= {"needs", "run"}, where
            if "needs" in block.attributes:
                assert block.attributes["needs"] in {*PROGRAMS, *PACKAGES, *NEVER}, where
    needed = {block.attributes["needs"] for page in pages() for block in blocks_of(page) if "needs" in block.attributes}
    assert set(NEVER) <= needed, "a reason that no block has"


def indented_code(text: str) -> list[str]:
    """First lines of code that is marked by its indent: no fence says how it is to be taken, and nothing checks it."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found, is_list = [], False
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", plain):
        if not paragraph.startswith(" "):
            is_list = re.match(r"([-*]|\d+\.) ", paragraph) is not None
        elif paragraph.startswith("    ") and not is_list:
            found.append(paragraph.strip().splitlines()[0])
    return found


def test_code_stands_in_fences() -> None:
    assert {page.name: code for page in DOCS.glob("*.md") if (code := indented_code(page.read_text(encoding="utf-8")))} == {}
    assert indented_code("Text:\n\n    make it\n    so\n\n1. A list\n\n    goes on\n") == ["make it"]


def test_code_fits_a_page() -> None:
    """What programs print is as wide as it is, and the environments of images stand as they were written."""
    too_wide = []
    for page in (*DOCS.glob("*.md"), ROOT / "README.md"):
        for block in blocks_of(page):
            lines = [line for line in block.text.splitlines() if block.language != "console" or line.startswith("$ ")]
            if block.language not in AS_THEY_ARE:
                too_wide += [f"{page.name}: {line}" for line in lines if len(line) > COLUMNS_MAX]
    assert too_wide == []


def test_settings_on_the_pages_are_ones_that_the_broker_knows() -> None:
    checked = 0
    for page in pages():
        for block in blocks_of(page):
            if block.language in ("properties", "toml"):
                _, notices = load(file_text=block.text, file_name=f"x.{block.language}")
                assert notices == [], f"{page.name}, line {block.line}"
                checked += 1
    assert checked >= 2


def test_the_unit_on_the_page_is_the_one_that_the_code_makes() -> None:
    (unit,) = [block.text for block in blocks_of(DOCS / "operations.md") if block.language == "ini"]
    assert unit == unit_text("/opt/ottla/bin/ottla", config="/etc/ottla/server.properties")


def test_a_transcript_that_is_no_longer_true_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_REWRITE", raising=False)
    text = "$ echo one \\\n  two\none two\n$ false; echo $?\n1\n$ echo in 12 ms\nin 7 ms\n"
    assert transcript_of(text) == [("echo one \\\n  two", "one two\n"), ("false; echo $?", "1\n"), ("echo in 12 ms", "in 7 ms\n")]
    run = PageRun(tmp_path)
    assert normal(run.run(Block("console", {}, text, 1, 0, 0))) == normal(text)
    failing = ("console", "$ echo one\ntwo\n"), ("sh", "false\n"), ("python", "1/0\n"), ("python", "def test_it(): assert 0\n")
    for language, wrong in failing:
        with pytest.raises(PageFailed, match="line 3"):
            run.run(Block(language, {}, wrong, 3, 0, 0))
    run.close()
