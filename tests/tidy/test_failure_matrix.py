"""Every row of the failure matrix in docs/spark.md names tests, and they exist."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT
from tests.tidy.test_invariants import exists

PAGE = ROOT / "docs" / "spark.md"
ROW = re.compile(r"^\| (?!Fault |---)(.+?) \|.*\| ([^|]*) \|$", re.M)


def rows(page: str) -> dict[str, list[str]]:
    """The tests of each fault."""
    matrix = page.partition("## Failure matrix")[2].partition("\n## ")[0]
    return {fault: re.findall(r"`([^`]+)`", tests) for fault, tests in ROW.findall(matrix)}


def missing(page: str) -> list[str]:
    """The faults without a test, or with one that is not there."""
    return [fault for fault, tests in rows(page).items() if not tests or not all("::" in test and exists(test) for test in tests)]


def test_every_row_of_the_failure_matrix_has_a_test() -> None:
    page = PAGE.read_text()
    assert len(rows(page)) >= 16
    assert missing(page) == []


def test_a_row_without_a_test_is_noticed() -> None:
    here = "tests/tidy/test_failure_matrix.py::test_a_row_without_a_test_is_noticed"
    head = "## Failure matrix\n| Fault | Result | Test |\n| --- | --- | --- |\n"
    body = f"| a | b | `{here}` |\n| c | d | `tests/no.py::test` |\n| e | f | - |\n| g | h | `tests/conftest.py` |\n"
    page = f"{head}{body}\n## Limits\n| x | y | - |\n"
    assert missing(page) == ["c", "e", "g"]
