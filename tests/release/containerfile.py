"""The instructions of a Containerfile, as far as ours uses them, and where their paths are outside a container."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

KNOWN = {
    "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD",
}  # fmt: skip


class Instruction(NamedTuple):
    """One line: what it is, and the rest."""

    name: str
    rest: str


def instructions(path: Path) -> list[Instruction]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    found = [Instruction(*line.split(" ", 1)) for line in lines]
    assert {one.name for one in found} <= KNOWN, "an instruction that no test follows"
    return found


def stages(found: list[Instruction]) -> list[list[Instruction]]:
    """The instructions by the FROM that they follow."""
    starts = [place for place, one in enumerate(found) if one.name == "FROM"]
    return [found[start:end] for start, end in zip(starts, [*starts[1:], len(found)], strict=True)]


def rest_of(stage: list[Instruction], name: str) -> list[str]:
    return [one.rest for one in stage if one.name == name]


def command_of(rest: str) -> list[str]:
    """The words of a CMD in exec form, without the options of a health check."""
    return [str(word) for word in json.loads(rest[rest.index("[") :])]


def environment_of(stage: list[Instruction]) -> dict[str, str]:
    return dict(rest.split("=", 1) for rest in rest_of(stage, "ENV"))


def below(root: Path, text: str) -> str:
    """The same text with the container's directories below `root`."""
    return re.sub(r"(?<![\w/])/(?=src|opt/ottla|var/lib/ottla)", f"{root}/", text)
