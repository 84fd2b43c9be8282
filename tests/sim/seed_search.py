"""Looks for a seed whose run fails while a fault is planted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def assert_noticed(name: str, found: tuple[int, str], seeds: int, verdict: str = "") -> None:
    """Fails unless one of so many seeds has noticed the fault, by a verdict that matches the regular expression."""
    seed, why = found
    print(f"{name} was caught by seed {seed}: {why}")
    assert seed > 0, f"{name} was not noticed in {seeds} seeds"
    assert why and re.search(verdict, why)


def catch_seed(
    fault: AbstractContextManager[Any], run: Callable[[int], object], seeds: int, first: int, verdict: str = ""
) -> tuple[int, str]:
    """The first of `seeds` seeds whose run fails under the fault with a verdict that matches the regular expression, and how; (0, "") if
    none does."""
    with fault:
        for seed in range(first, first + seeds):
            try:
                run(seed)
            except AssertionError as failure:
                why = str(failure).split("\n", 1)[0]
                if re.search(verdict, why):
                    return seed, why
    return 0, ""
