"""Decides for one world of clusters which faults it has, how often, and which rare combinations. This is swarm testing: if every world had
all faults, it would miss failures that occur only when other faults are absent. Each seed therefore draws its own weights (`FACTORS`), some
of them 0, and its own switches (`SWITCHES`). `docs/invariants.md`, section "The generator", describes each switch and its probability. The
draws depend only on the seed, not on the run.
"""

from __future__ import annotations

import random

from tests.sim.machine import AT_ONCE_MS

FACTORS = (0, 1, 1, 1, 2, 4)
"""How often a kind of fault strikes in one world, compared with its usual weight."""
SWITCHES = {
    "strand": 0.3,
    "alter": 0.4,
    "hiccup": 0.3,
    "return": 0.3,
    "flap": 0.3,
    "slow": 0.4,
    "roll": 0.4,
    "unseat": 0.3,
}
"""How likely each switch is on."""
USUAL_MS, SLOW_MS = (0, 15), (0, 120)
"""The delay until the event loop of a broker gets the result of a thread. On a busy machine roles change meanwhile, and logs are cut."""


class Swarm:
    """The draws of one seed."""

    def __init__(self, seed: int, *, is_plain: bool = False) -> None:
        """With `is_plain` all weights are the usual ones, and no switch is on."""
        self._seed = seed
        self._is_plain = is_plain
        self._switches = {name for name, likely in SWITCHES.items() if self._chance(name).random() < likely and not is_plain}

    @property
    def learned_ms(self) -> tuple[int, int]:
        """The delay until the event loop of a broker gets the result of a thread."""
        if self._is_plain:
            return AT_ONCE_MS
        return SLOW_MS if "slow" in self or "flap" in self else USUAL_MS

    def weighted(self, kind: str, weight: int) -> int:
        """The weight of a kind of fault in this world."""
        return weight if self._is_plain else weight * self._chance(kind).choice(FACTORS)

    def _chance(self, name: str) -> random.Random:
        """Returns a random generator for each name, so that a new switch does not change worlds that do not have it."""
        return random.Random(f"{self._seed} {name}")

    def __contains__(self, switch: str) -> bool:
        assert switch in SWITCHES, f"no such switch: {switch}"
        return switch in self._switches
