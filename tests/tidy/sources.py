"""Lists the source files of the repository, by the part to which they belong."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "ottla"
CORE = (
    "client/core",
    "cluster",
    "security",
    "replication",
    "groups",
    "transactions",
    "sharing",
    "controller",
    "machine",
    "storage",
    "wire",
    "base",
)
_TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".txt",
    ".toml",
    ".yml",
    ".yaml",
    ".json",
    ".java",
    ".xml",
    ".html",
    ".css",
    ".js",
    ".sh",
    ".cfg",
    ".properties",
}
_TEXT_NAMES = {"Makefile", "run", "LICENSE", ".gitignore"}
_OUTSIDE = {".git", ".venv", "build", "dist", "data", "__pycache__", "target", ".hypothesis"}


def python_files(*parts: str) -> list[Path]:
    """Returns all Python files below the given folders of the repository, in order."""
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


def core_files() -> list[Path]:
    return python_files(*(f"ottla/{name}" for name in CORE))


def text_files() -> Iterator[Path]:
    """Returns every file that people write, code or not. Caches and generated files are left out."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not _is_outside(name))
        for path in (Path(folder, name) for name in sorted(names)):
            if not _is_outside(path.name) and (path.suffix in _TEXT_SUFFIXES or path.name in _TEXT_NAMES):
                yield path


def _is_outside(name: str) -> bool:
    return name in _OUTSIDE or (name.startswith(".") and name.endswith("cache"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
