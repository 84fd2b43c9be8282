"""Reads the table "Where is it?" in docs/ARCHITECTURE.md and checks each row against the code.

An answer names one file below `ottla/` in backticks, followed by symbols that the file defines, in brackets and backticks:

    | Where does a log begin? | `storage/log.py` (`Log.open`) |

A folder (`wire/messages/`) or a page (`docs/...`) needs no symbol, it must only exist.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PATH = r"[\w./-]+(?:\.py|/)"
_NAMED = re.compile(rf"`({PATH})`(?:\s*\(([^()]*(?:`[^`]*`[^()]*)*)\))?")
HEAD = ("| Question | Answer |", "| --- | --- |")
_SYMBOL = re.compile(r"`([A-Za-z_][\w.]*)`")


class Row(NamedTuple):
    question: str
    answer: str


def rows(page: str) -> list[Row]:
    """Returns the rows of the table under the heading "Where is it?"."""
    _, _, behind = page.partition("## Where is it?")
    lines = [line for line in behind.split("\n## ")[0].splitlines() if line.startswith("|") and line not in HEAD]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|", 1))) for line in lines]


def complaints(row: Row, package: Path) -> Iterator[str]:
    """Yields what is wrong with a row: missing files, and symbols that a file does not define."""
    named = _NAMED.findall(row.answer)
    if not named:
        yield f"{row.question}: names no file"
    if len(named) > 1:
        yield f"{row.question}: names several files"
    for name, within in named:
        path = _resolve(name, package)
        if path is None:
            yield f"{row.question}: {name} does not exist"
        elif name.endswith(".py"):
            yield from _symbols_missing(row, name, path, _SYMBOL.findall(within))


def _resolve(name: str, package: Path) -> Path | None:
    return next((path for path in (package / name, package.parent / name) if path.exists()), None)


def _symbols_missing(row: Row, name: str, path: Path, symbols: list[str]) -> Iterator[str]:
    if not symbols:
        yield f"{row.question}: names no symbol of {name}"
    known = defined(ast.parse(path.read_text(encoding="utf-8")))
    for symbol in symbols:
        if symbol not in known:
            yield f"{row.question}: {symbol} is not defined in {name}"


def defined(tree: ast.Module) -> set[str]:
    """Returns the names that a module defines: at its top level, and in its classes (plain, and as `Class.name`)."""
    names: set[str] = set()
    for node in tree.body:
        own = _names_of(node)
        names.update(own)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                for name in _names_of(inner):
                    names.update((name, f"{node.name}.{name}"))
    return names


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []
