"""The page of Kafka's tools: its table follows from the declared differences, and its counts from the lines and steps that are compared."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS
from tools.compare_cases import CASES, Case
from tools.compare_tokens import steps
from tools.compare_tools import Seen, Verdict, table

PAGE = (DOCS / "tools.md").read_text(encoding="utf-8")


def declared(case: Case) -> Verdict:
    """The outcome that `tests/clients/test_apache_tools.py` demands."""
    return Verdict(case, Seen(0, "", ""), Seen(1 if case.exits else 0, "another" if case.why else "", ""))


def test_the_table_is_the_one_of_the_declared_differences() -> None:
    shown = re.search(r"^\| Tool \| Cases .*?\n\n", PAGE, re.M | re.S)
    assert shown is not None
    expected = table([declared(case) for case in CASES])
    assert [line.split() for line in shown[0].strip().splitlines()] == [line.split() for line in expected.strip().splitlines()]


def test_the_steps_about_tokens_are_counted() -> None:
    (said,) = re.findall(r"requests in (\d+) steps", PAGE)
    assert int(said) == len(list(steps()))
    assert f"All {said} answers are alike" in PAGE
