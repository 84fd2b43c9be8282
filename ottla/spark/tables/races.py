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
    """Another commit came in between, and nothing of this one is in the table. The table's new state has to be looked at."""


def attempts() -> Iterator[int]:
    """Returns how many attempts are left after each one, down to 0. Pauses between two attempts."""
    for tries_left in reversed(range(RACE_TRIES)):
        yield tries_left
        time.sleep(random.uniform(0, RACE_PAUSE_S))
