"""The table of APIs and the handlers agree, no fact of an API is declared twice, and each handler's docstring has a fixed form. ApiVersions
advertises the APIs of the table, so a line without a handler would make the first request fail.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ottla.handlers.served_apis import TABLE
from ottla.wire.apis import APIS
from tests.tidy.architecture import defined
from tests.tidy.sources import PACKAGE, parsed, shown

HANDLERS = PACKAGE / "handlers"
MESSAGES = PACKAGE / "wire" / "messages"
FORM = ("Behaviour", "Version notes", "Not done")
OWN_FACTS = ("KEY", "API_KEY", "MIN_VERSION", "MAX_VERSION", "VERSIONS", "FLEXIBLE_SINCE")
"""Names under which a module would repeat what the table says of it."""


def _handlers() -> list[Path]:
    """Returns the modules that define `handle`; the other modules have functions that several handlers use."""
    return [path for path in sorted(HANDLERS.rglob("*.py")) if "handle" in defined(parsed(path))]


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(HANDLERS).with_suffix("").parts)


def form_complaints(docstring: str) -> list[str]:
    """Returns the headings that are missing or out of order. A handler that does everything has no heading "Not done"."""
    if re.search(r"(?m)^Not done: nothing\.?$", docstring):
        return ["an empty heading"]
    found = [heading for heading in re.findall(r"(?m)^([A-Z][a-z ]+):", docstring) if heading in FORM]
    missing = [heading for heading in FORM[:2] if heading not in found]
    return missing or ([] if found == [heading for heading in FORM if heading in found] else ["the headings are out of order"])


def repeated_facts(tree: ast.Module) -> list[str]:
    """Returns where a module repeats its API's key or versions: in a constant, a keyword of a message's declaration, or the docstring."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in OWN_FACTS:
            found.append(node.id)
        if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in ("Request", "Response") for base in node.bases):
            found += [f"{node.name}({keyword.arg}=)" for keyword in node.keywords]
    if re.search(r"\(key \d+\)|\bAPI and versions\b", ast.get_docstring(tree) or ""):
        found.append("docstring")
    return found


def test_each_line_of_the_table_has_its_handler() -> None:
    assert sorted(api.handler for api in TABLE.values()) == sorted(map(_dotted, _handlers()))
    assert len(TABLE) == len({api.handler for api in TABLE.values()}) > 0


def test_each_api_of_the_protocol_has_its_messages() -> None:
    assert {api.module for api in APIS.values()} <= {path.stem for path in MESSAGES.glob("*.py")}


def test_no_fact_of_an_api_stands_twice() -> None:
    complaints = {shown(path): found for path in (*_handlers(), *sorted(MESSAGES.glob("*.py"))) if (found := repeated_facts(parsed(path)))}
    assert complaints == {}


def test_a_repeated_fact_is_found() -> None:
    assert repeated_facts(ast.parse("KEY, MIN_VERSION = 1, 4")) == ["KEY", "MIN_VERSION"]
    assert repeated_facts(ast.parse("class FetchRequest(Request, key=1): pass")) == ["FetchRequest(key=)"]
    assert repeated_facts(ast.parse('"""Fetch (key 1): reads."""')) == ["docstring"]
    assert repeated_facts(ast.parse('"""Fetch: reads."""\nKEYS_SINCE = 4\nclass Key(RecordKey, key=0, versions=(0, 3)): pass')) == []


def test_no_handler_imports_another() -> None:
    """No handler imports another handler: functions that several handlers use are in separate modules."""
    found, handlers = {}, {f"ottla.handlers.{_dotted(path)}" for path in _handlers()}
    for path in _handlers():
        imports = [node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.module]
        if others := [name for name in imports if name in handlers]:
            found[shown(path)] = others
    assert found == {}


def test_every_handler_opens_in_the_fixed_form() -> None:
    complaints = {}
    for path in _handlers():
        name, found = TABLE_NAMES[_dotted(path)], form_complaints(ast.get_docstring(parsed(path)) or "")
        if found or not (ast.get_docstring(parsed(path)) or "").startswith(f"{name}: "):
            complaints[shown(path)] = found or [f"begins with another name than {name}"]
    assert complaints == {}


TABLE_NAMES = {api.handler: api.name for api in TABLE.values()}


def test_the_form_can_be_missed() -> None:
    whole = "Fetch.\n\nBehaviour: reads.\n\nVersion notes: none."
    assert form_complaints(whole) == form_complaints(whole + "\n\nNot done: writes.") == []
    assert form_complaints(whole + "\n\nNot done: nothing.") == ["an empty heading"]
    assert form_complaints(whole.replace("Version notes", "Notes")) == ["Version notes"]
    assert form_complaints("Not done: x\nBehaviour: x\nVersion notes: x") == ["the headings are out of order"]
