"""The tree in docs/ARCHITECTURE.md has the folders of the package, in the layers that import-linter holds."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import DOCS, ROOT, blocks_of

FOLDER = re.compile(r"^  (\w+)/ ", re.M)


def layers_of_the_page() -> list[set[str]]:
    (tree,) = [block.text for block in blocks_of(DOCS / "ARCHITECTURE.md") if block.text.startswith("ottla/\n")]
    package = tree.partition("\npyspark_ottla/")[0]
    return [set(FOLDER.findall(part)) for part in package.split("  ----\n")]


def test_the_layers_of_the_page_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    assert layers_of_the_page() == [{name.strip() for name in layer.split("|")} for layer in layers]


def test_the_rooms_of_the_handlers_are_named() -> None:
    tree = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (rooms,) = re.findall(r"in the room of its subject \(([^)]+)\)", tree)
    found = {path.name for path in (ROOT / "ottla" / "handlers").iterdir() if (path / "__init__.py").exists()}
    assert set(re.split(r"[,\s]+", rooms)) == found
