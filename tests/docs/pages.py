"""The pages of docs/ cut into code blocks, with the words after the fence that say how a block is to be taken.

A fence is followed by the language and, where there is more to say, by attributes: `needs="java"` names something that may be absent,
`run="background"` is left running until the page's end, `run="no"` is for looking at.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOR_DEVELOPERS = ("ARCHITECTURE.md", "performance.md", "tools.md")
"""They show what takes minutes, or a source tree to change; their links are followed, their commands are not run."""

_FENCE = re.compile(r"^```(?P<language>[\w-]*)(?P<attributes>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block. `start` and `end` are the places of its text in the page."""

    language: str
    attributes: dict[str, str]
    text: str
    line: int
    start: int
    end: int


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            dict(re.findall(r'([\w-]+)="([^"]*)"', found["attributes"])),
            found["text"],
            text.count("\n", 0, found.start()) + 1,
            *found.span("text"),
        )
        for found in _FENCE.finditer(text)
    ]


def pages() -> list[Path]:
    """Those for users, written by people; what is under reference/ is made from the code and has no blocks to run."""
    return sorted(page for page in DOCS.glob("*.md") if page.name not in FOR_DEVELOPERS)
