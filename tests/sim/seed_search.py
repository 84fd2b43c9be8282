"""Looks for a seed whose run fails while a fault is planted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def catch_seed(fault: AbstractContextManager[Any], run: Callable[[int], object], seeds: int, first: int) -> tuple[int, str]:
    """The first of `seeds` seeds whose run fails under the fault, and how; (0, "") if none does."""
    with fault:
        for seed in range(first, first + seeds):
            try:
                run(seed)
            except AssertionError as failure:
                return seed, str(failure).split("\n", 1)[0]
    return 0, ""
