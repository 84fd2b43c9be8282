"""Every row of the tables of failures in docs/spark.md, docs/tables.md and docs/cluster.md names tests, and they exist."""

from __future__ import annotations

import re

import pytest

from tests.tidy.sources import ROOT
from tests.tidy.test_invariants import exists

SPARK = "Failure matrix"
ROW = re.compile(r"^\| (?!Fault |Failure |---)(.+?) \|.*\| ([^|]*) \|$", re.M)


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """Returns the tests of each fault."""
    matrix = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return {fault: re.findall(r"`([^`]+)`", tests) for fault, tests in ROW.findall(matrix)}


def missing(page: str, heading: str) -> list[str]:
    """Returns the faults without a test, or with a test that does not exist."""
    return [fault for fault, tests in rows(page, heading).items() if not tests or not all("::" in test and exists(test) for test in tests)]


@pytest.mark.parametrize(
    ("name", "heading", "count"), [("spark.md", SPARK, 16), ("tables.md", SPARK, 16), ("cluster.md", "What each failure looks like", 14)]
)
def test_every_row_of_a_table_of_failures_has_a_test(name: str, heading: str, count: int) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert len(rows(page, heading)) >= count
    assert missing(page, heading) == []


def test_a_row_without_a_test_is_noticed() -> None:
    here = "tests/tidy/test_failure_matrix.py::test_a_row_without_a_test_is_noticed"
    head = "## Failure matrix\n| Fault | Result | Test |\n| --- | --- | --- |\n"
    body = f"| a | b | `{here}` |\n| c | d | `tests/no.py::test` |\n| e | f | - |\n| g | h | `tests/conftest.py` |\n"
    page = f"{head}{body}\n## Limits\n| x | y | - |\n"
    assert missing(page, SPARK) == ["c", "e", "g"]
