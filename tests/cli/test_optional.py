"""The optional parts: nothing else imports them, and the program says which package a part lacks."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from ottla.cli.command import Refused
from ottla.cli.optional import PARTS, library, part

ROOT = Path(__file__).parents[2] / "ottla" / "cli"
PACKAGES = sorted({module.partition(".")[0] for module in PARTS.values()})


def importers_of(package: str) -> list[str]:
    """Modules outside a package that import from it when they run."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
        for_types = {node for guard in guards for node in guard.body}
        names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in for_types]
        if path.relative_to(ROOT).parts[0] != package and any(name.startswith(f"ottla.cli.{package}") for name in names):
            found.append(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_else_imports_a_part(package: str) -> None:
    assert importers_of(package) == []
    assert importers_of("records") != [], "the search finds imports"


@pytest.mark.parametrize("name", sorted(PARTS))
def test_every_part_can_be_loaded(name: str) -> None:
    assert part(name) is importlib.import_module(f"ottla.cli.{PARTS[name]}")


def test_a_missing_library_is_named_with_its_package() -> None:
    assert library("json").loads("1") == 1
    with pytest.raises(Refused, match="no_such_library cannot be imported; install it: pip install no-such-library"):
        library("no_such_library.part", "no-such-library")
