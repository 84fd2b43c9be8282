"""Random numbers from a seed."""

from __future__ import annotations

import random


class SeededRandom:
    """`ports.Random` from a seed: the same seed gives the same run."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def token_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)
