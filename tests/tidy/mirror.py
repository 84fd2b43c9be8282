"""Finds the tests of a module: `python -m tests.tidy.mirror ottla/storage/log.py`.

The tests of `ottla/storage/log.py` are in `tests/storage/test_log.py`. A module without such a file is tested by the files that import it;
a handler, by the files that import its messages. A module that no test imports is a part of the modules that import it, and the tests of
those modules test it. Commands are loaded by their names, and tested by the files of their folder.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.tidy.imports import Graph, import_graph, imported_by
from tests.tidy.sources import ROOT, python_files, shown


@cache
def graph() -> Graph:
    return import_graph(ROOT, "ottla")


@cache
def importing_tests() -> dict[str, list[str]]:
    """Returns the test files that import each module."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in python_files("tests"):
        if path.name.startswith("test_"):
            for module in imported_by(path, graph()):
                found[module].append(shown(path))
    return found


def tests_of(module: str) -> list[str]:
    """Returns the test files of a module, given by its name."""
    importers = [name for name, imported in graph().items() if module in imported]
    folder = next(folder for folder in mirrored(module).parents if folder.is_dir())
    return (
        own_tests(module)
        or sorted({test for importer in importers for test in own_tests(importer)})
        or [shown(path) for path in sorted(folder.glob("test_*.py"))]
    )


def own_tests(module: str) -> list[str]:
    """Returns the test file with the module's name, else the files that import the module."""
    if mirrored(module).exists():
        return [shown(mirrored(module))]
    messages = f"ottla.wire.messages.{module.rpartition('.')[2]}" if module.startswith("ottla.handlers.") else module
    return importing_tests()[module] or importing_tests()[messages]


def mirrored(module: str) -> Path:
    """Returns the path of the test file that has the module's name."""
    *folders, name = module.split(".")[1:]
    return ROOT.joinpath("tests", *folders, f"test_{name}.py")


def main(paths: list[str]) -> None:
    for path in paths:
        module = ".".join(Path(path).resolve().relative_to(ROOT).with_suffix("").parts)
        print(*tests_of(module), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
