"""What the shells may do that the core may not, and where each of it is."""

from __future__ import annotations

import ast

from tests.tidy.sources import PACKAGE


def _calls(dotted: str) -> set[str]:
    """The folders or files below `ottla/client` that call a function of a module by its full name."""
    module, name = dotted.split(".")
    found = set()
    for path in sorted((PACKAGE / "client").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name) and node.value.id == module:
                found.add(path.relative_to(PACKAGE / "client").parts[0])
    return found


def test_only_the_blocking_shell_sleeps() -> None:
    assert _calls("time.sleep") == {"blocking"}


def test_only_the_blocking_shell_opens_sockets() -> None:
    assert _calls("socket.create_connection") == {"blocking"}


def test_no_folder_has_more_than_forty_modules() -> None:
    for folder in (PACKAGE / "client", PACKAGE / "client" / "core", PACKAGE / "client" / "blocking"):
        assert len(list(folder.glob("*.py"))) <= 40
