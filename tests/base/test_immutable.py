"""`immutable`: objects are slotted, compared and hashed by their fields, and what the type checker refuses is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import field, replace
from pathlib import Path

import pytest

from ottla.base.immutable import immutable

ROOT = Path(__file__).parents[2]


@immutable
class Point:
    x: int
    y: int = 0


@immutable(kw_only=True)
class Named:
    name: str
    tags: tuple[str, ...] = field(default_factory=tuple)


def test_objects_are_equal_and_hash_alike_when_their_fields_are() -> None:
    assert Point(1) == Point(1, 0) != Point(2)
    assert {Point(1): "found"}[Point(1, 0)] == "found"
    assert replace(Named(name="a"), name="b") == Named(name="b", tags=())


def test_there_is_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        object.__setattr__(Point(1), "z", 3)
    with pytest.raises(TypeError):
        Named("a")  # type: ignore[call-arg]


def test_the_type_checker_refuses_assignments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from ottla.base.immutable import immutable\n\n\n@immutable\nclass Point:\n    x: int\n\n\nPoint(1).x = 2\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--config-file=", str(program)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and 'program.py:9: error: Property "x" defined in "Point" is read-only' in run.stdout, run.stdout
