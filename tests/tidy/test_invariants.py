"""Every invariant that code or tests cite has a row in docs/invariants.md, and the tests of each row exist."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.tidy.sources import ROOT

PAGE = ROOT / "docs" / "invariants.md"
CITED = re.compile(r"\bI[1-9]\d?\b")
ROW = re.compile(r"^\| (I\d+) \| (.+) \| (.+) \|$", re.M)


def rows(page: str) -> dict[str, list[str]]:
    """The tests of each row."""
    return {number: re.findall(r"`([^`]+)`", tests) for number, _meaning, tests in ROW.findall(page)}


def without_row(known: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The invariants that a source cites and no row explains."""
    return sorted({cited for source in sources for cited in CITED.findall(source)} - set(known))


def missing_tests(known: dict[str, list[str]]) -> list[str]:
    """The rows without a test, or with one that is not there."""
    return [number for number, tests in known.items() if not tests or not all(map(exists, tests))]


def exists(test: str) -> bool:
    path, _, function = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not function or f"def {function}(" in file.read_text())


def test_every_cited_invariant_has_a_row() -> None:
    sources = [path.read_text() for folder in ("ottla", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert without_row(rows(PAGE.read_text()), sources) == []


def test_the_tests_of_every_row_exist() -> None:
    assert missing_tests(rows(PAGE.read_text())) == []


def test_what_is_missing_is_noticed() -> None:
    here = "tests/tidy/test_invariants.py::test_what_is_missing_is_noticed"
    page = f"| I7 | Retention. | `{here}` |\n| I8 | x | `tests/no_such.py` |\n| I9 | y | - |\n"
    assert without_row(rows(page), ["holds I7, I8 and I12", "I1O and KI3"]) == ["I12"]
    assert missing_tests(rows(page)) == ["I8", "I9"]
    assert not exists("tests/tidy/test_invariants.py::test_no_such")
