"""The table of APIs and the handlers agree, and each handler says in a fixed form what it serves and what it does not.

What ApiVersions advertises comes from the table alone, so a line without a module would be a promise that the first request breaks.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ottla.requests.apis import TABLE
from tests.tidy.sources import PACKAGE, parsed, shown
from tools.docs import handler_sections

HANDLERS = PACKAGE / "handlers"
FORM = ("API and versions", "Behaviour", "Version notes", "Not done")


def _constants(path: Path) -> dict[str, object]:
    """The module's own KEY, MIN_VERSION and MAX_VERSION, read without importing it: one assignment each, or one for all three."""
    found: dict[str, object] = {}
    for node in parsed(path).body:
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        is_unpacking = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        names = target.elts if isinstance(target, ast.Tuple) and is_unpacking else [target]
        values = node.value.elts if isinstance(node.value, ast.Tuple) and is_unpacking else [node.value]
        for name, value in zip(names, values, strict=True):
            if isinstance(name, ast.Name) and name.id in ("KEY", "MIN_VERSION", "MAX_VERSION"):
                found[name.id] = value.value if isinstance(value, ast.Constant) else None
    return found


def _handlers() -> dict[str, dict[str, object]]:
    """Each module of the package and the constants that it declares."""
    return {path.stem: _constants(path) for path in sorted(HANDLERS.glob("*.py")) if path.stem != "__init__"}


def form_complaints(docstring: str) -> list[str]:
    """The headings that are missing or out of order."""
    positions = [match.start() if (match := re.search(rf"(?m)^{heading}\b", docstring)) else -1 for heading in FORM]
    missing = [heading for heading, position in zip(FORM, positions, strict=True) if position < 0]
    return missing or ([] if positions == sorted(positions) else ["the headings are out of order"])


def test_every_line_of_the_table_is_what_its_module_says() -> None:
    table = {api.module: {"KEY": api.key, "MIN_VERSION": api.min_version, "MAX_VERSION": api.max_version} for api in TABLE.values()}
    assert len(table) == len(TABLE) > 0
    assert _handlers() == table


def test_every_handler_names_its_key_and_versions() -> None:
    wrong = {}
    for name, constants in _handlers().items():
        said = handler_sections(ast.get_docstring(parsed(HANDLERS / f"{name}.py")) or "").get("API and versions", "")
        missing = [value for value in constants.values() if not re.search(rf"(?<!\d){value}(?!\d)", said)]
        if missing:
            wrong[name] = (said, missing)
    assert wrong == {}


def test_every_handler_opens_in_the_fixed_form() -> None:
    complaints = {}
    for name in _handlers():
        path = HANDLERS / f"{name}.py"
        found = form_complaints(ast.get_docstring(parsed(path)) or "")
        if found:
            complaints[shown(path)] = found
    assert complaints == {}


def test_the_form_can_be_missed() -> None:
    whole = "Fetch.\n\nAPI and versions: key 1.\n\nBehaviour: reads.\n\nVersion notes: none.\n\nNot done: nothing."
    assert form_complaints(whole) == []
    assert form_complaints(whole.replace("Version notes", "Notes")) == ["Version notes"]
    assert form_complaints("Not done: x\nBehaviour: x\nVersion notes: x\nAPI and versions: x") == ["the headings are out of order"]
