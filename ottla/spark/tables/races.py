"""Repeats commits that the table's log refuses because another writer committed first."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

RACE_TRIES = 20
"""Attempts of a commit while other writers commit in between."""
RACE_PAUSE_S = 0.2
"""Longest pause before the next attempt; the pause is random, so that two writers do not meet again."""


class RacedError(Exception):
    """Another writer committed first, and this commit did not change the table. The caller has to read the table's new state."""


def attempts() -> Iterator[int]:
    """Yields once for each attempt, with the number of remaining attempts, down to 0. Pauses between two attempts."""
    for tries_left in reversed(range(RACE_TRIES)):
        yield tries_left
        time.sleep(random.uniform(0, RACE_PAUSE_S))
