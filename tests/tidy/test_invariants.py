"""Every invariant and promise that code or tests cite has a row in docs/invariants.md, and the tests of each row exist."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.tidy.sources import ROOT

PAGE = ROOT / "docs" / "invariants.md"
CITED = re.compile(r"\bI[1-9]\d?\b")
CITED_PROMISE = re.compile(r"\bP(?:[1-9]|1\d)\b")
ROW = re.compile(r"^\| (I\d+|KIP-\d+) \| (.+) \| (.+) \|$", re.M)
PROPOSALS = {f"KIP-{number}" for number in (101, 279, 320, 380, 497, 516, 570, 903, 966)}
PROMISE_ROW = re.compile(r"^\| (P\d+) \| (.+) \| ?(.*) \|$", re.M)
TEST = re.compile(r"`(tests/[^`]+)`")


def rows(page: str) -> dict[str, list[str]]:
    """Returns the tests of each row."""
    return {number: re.findall(r"`([^`]+)`", tests) for number, _meaning, tests in ROW.findall(page)}


def unkept(page: str) -> list[str]:
    """Returns the promises that name neither an invariant with a row nor an existing test."""
    known = rows(page)
    found = []
    for number, meaning, kept_by in PROMISE_ROW.findall(page):
        invariants, tests = CITED.findall(kept_by), TEST.findall(kept_by)
        holds = (invariants or tests) and set(invariants) <= set(known) and all(map(exists, tests))
        if not holds and not meaning.startswith("Not promised"):
            found.append(number)
    return found


def without_row(known: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Returns the invariants that a source cites and that have no row."""
    return sorted({cited for source in sources for cited in CITED.findall(source)} - set(known))


def missing_tests(known: dict[str, list[str]]) -> list[str]:
    """Returns the rows without a test, or with a test that does not exist."""
    return [number for number, tests in known.items() if not tests or not all(map(exists, tests))]


def exists(test: str) -> bool:
    path, _, function = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not function or f"def {function}(" in file.read_text())


def test_every_cited_invariant_has_a_row() -> None:
    sources = [path.read_text() for folder in ("ottla", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert without_row(rows(PAGE.read_text()), sources) == []


def test_every_cited_promise_has_a_row_and_is_kept_by_something() -> None:
    page = PAGE.read_text()
    promised = [number for number, _meaning, _kept_by in PROMISE_ROW.findall(page)]
    sources = [path.read_text() for folder in ("ottla", "tests") for path in (ROOT / folder).rglob("*.py")]
    cited = {found for source in sources for found in CITED_PROMISE.findall(source)}
    assert sorted(cited - set(promised)) == []
    assert unkept(page) == []


def test_the_tests_of_every_row_exist() -> None:
    assert missing_tests(rows(PAGE.read_text())) == []


def test_every_proposal_on_replication_has_a_row() -> None:
    assert {number for number in rows(PAGE.read_text()) if number.startswith("KIP-")} == PROPOSALS


def test_what_is_missing_is_noticed() -> None:
    here = "tests/tidy/test_invariants.py::test_what_is_missing_is_noticed"
    page = f"| I7 | Retention. | `{here}` |\n| I8 | x | `tests/no_such.py` |\n| I9 | y | - |\n| KIP-1 | z | `tests/no.py` |\n"
    assert without_row(rows(page), ["holds I7, I8 and I12", "I1O and KI3"]) == ["I12"]
    assert missing_tests(rows(page)) == ["I8", "I9", "KIP-1"]
    assert not exists("tests/tidy/test_invariants.py::test_no_such")
    promised = ("a | I7", f"b | I{99}", "c | `tests/no_such.py`", "Not promised: d |", "e |", f"f | `{here}`")
    promises = "".join(f"| P{number} | {row} |\n" for number, row in enumerate(promised, start=1))
    assert unkept(page + promises) == ["P2", "P3", "P5"]
