"""Runs every transcript of `tests/scenarios` against its world."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

HERE = Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*/*.txt"))
DIVIDER = "----"


class World(Protocol):
    def run(self, command: str) -> list[str]:
        """Carries out one line; answers the lines of its output."""


@dataclass
class Block:
    """One command with the remarks before it and the output after it."""

    remarks: list[str] = field(default_factory=list)
    command: str = ""
    output: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join([*self.remarks, *([self.command, DIVIDER] if self.command else []), *self.output])


def parse(text: str) -> list[Block]:
    blocks = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.split("\n")
        block = Block()
        while lines and lines[0].startswith("#"):
            block.remarks.append(lines.pop(0))
        if lines:
            block.command = lines.pop(0)
            assert lines and lines.pop(0) == DIVIDER, f"a command without {DIVIDER}: {block.command!r}"
        block.output = lines
        blocks.append(block)
    return blocks


def world_of(area: str) -> World:
    world: World = importlib.import_module(f"tests.scenarios.{area}_world").World()
    return world


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript(path: Path) -> None:
    blocks = parse(path.read_text(encoding="utf-8"))
    world = world_of(path.parent.name)
    actual = [Block(block.remarks, block.command, world.run(block.command) if block.command else []) for block in blocks]
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text("\n\n".join(block.text() for block in actual) + "\n", encoding="utf-8")
        return
    for block, now in zip(blocks, actual, strict=True):
        assert now.text() == block.text(), f"in {path.relative_to(HERE)}"


def test_there_are_transcripts() -> None:
    assert TRANSCRIPTS
