"""The structure of the source tree: no cycles of imports, short functions, folders with few files, and docs/ARCHITECTURE.md names existing
files.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from statistics import median

import pytest

from tests.tidy import architecture, rules
from tests.tidy.imports import circles, import_graph
from tests.tidy.sources import PACKAGE, ROOT, parsed, python_files

FUNCTION_LINES_MEDIAN = 6
MODULES_IN_A_FOLDER_MAX = 40
WHERE_ROWS_MAX = 40
ONE_FILE_AN_API = {PACKAGE / "wire" / "messages"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """There are no cycles of imports, including imports inside functions and for type checkers."""
    assert circles(import_graph(ROOT, "ottla")) == []


@pytest.mark.parametrize(
    "back",
    [
        "from ottla.b import y",
        "def f():\n    from ottla import b\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import y\n",
        "import ottla.b\n",
    ],
)
def test_a_circle_is_found_however_late_its_import_runs(back: str, tmp_path: Path) -> None:
    package = tmp_path / "ottla"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text(back)
    (package / "b.py").write_text("from ottla.c import z\n")
    (package / "c.py").write_text("from ottla import a\n")
    (package / "d.py").write_text("from ottla.a import x\n")
    assert circles(import_graph(tmp_path, "ottla")) == [["ottla.a", "ottla.b", "ottla.c"]]


def test_half_of_all_functions_are_very_short() -> None:
    lengths = [length for path in python_files("ottla") for length in rules.lengths(parsed(path))]
    assert median(lengths) <= FUNCTION_LINES_MEDIAN


def test_no_folder_has_more_modules_than_one_can_look_over() -> None:
    folders = {path.parent for path in python_files("ottla")} - ONE_FILE_AN_API
    counts = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: count for folder, count in counts.items() if count > MODULES_IN_A_FOLDER_MAX} == {}


# The tree


def test_the_tree_of_the_page_has_every_package_and_no_other_folder() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    tree = re.findall(r"^( *)([\w-]+)/ ", page.partition("## The tree")[2].split("```")[1], re.MULTILINE)
    named = {"ottla": {name for depth, name in tree[: [name for _, name in tree].index("tests")] if len(depth) == 2}}
    named["tests"] = {name for depth, name in tree[[name for _, name in tree].index("tests") :] if len(depth) == 2}
    files = {parent: [path.relative_to(ROOT / parent) for path in (ROOT / parent).glob("*/**/*.*")] for parent in ("ottla", "tests")}
    there = {parent: {path.parts[0] for path in paths if "__pycache__" not in path.parts} for parent, paths in files.items()}
    assert named["ottla"] == there["ottla"]
    mirrored = {name for name in there["tests"] if (PACKAGE / name).is_dir()}
    assert named["tests"] == there["tests"] - mirrored


# The table "Where is it?"


def test_the_page_of_the_architecture_names_files_that_hold_what_is_said() -> None:
    rows = architecture.rows((ROOT / "docs" / "ARCHITECTURE.md").read_text())
    assert 20 <= len(rows) <= WHERE_ROWS_MAX
    assert [complaint for row in rows for complaint in architecture.complaints(row, PACKAGE)] == []


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| Where is it? | `wire/nowhere.py` (`x`) |", "wire/nowhere.py does not exist"),
        ("| Where is it? | `wire/framing.py` (`no_such_name`) |", "no_such_name is not defined in wire/framing.py"),
        ("| Where is it? | `wire/framing.py` |", "names no symbol of wire/framing.py"),
        ("| Where is it? | somewhere |", "names no file"),
        ("| Where is it? | `wire/` and `wire/messages/` |", "names several files"),
    ],
)
def test_a_row_that_is_not_true_is_noticed(row: str, complaint: str) -> None:
    (found,) = architecture.rows(f"# A\n\n## Where is it?\n\n| Question | Answer |\n| --- | --- |\n{row}\n")
    assert [complaint in text for text in architecture.complaints(found, PACKAGE)] == [True]


def test_definitions_of_a_module_are_found() -> None:
    tree = ast.parse("A: int = 1\nB = 2\nclass C:\n    d: int = 0\n    def e(self): ...\ndef f(): ...\n")
    assert architecture.defined(tree) == {"A", "B", "C", "C.d", "C.e", "d", "e", "f"}
    assert re.fullmatch(architecture.PATH, "wire/framing.py")
