"""Production randomness: the operating system's generator for tokens and ids, a private Mersenne twister for jitter.

Secrets and ids must not be guessable, so `token_bytes` asks the kernel. Jitter and sampling need only an even distribution, so they use the
twister, which needs no system call.
"""

from __future__ import annotations

import os
import random


class SystemRandom:
    """`ports.Random` on this machine."""

    __slots__ = ("_jitter",)

    def __init__(self) -> None:
        self._jitter = random.Random()

    def token_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def uniform(self, low: float, high: float) -> float:
        return self._jitter.uniform(low, high)

    def randrange(self, stop: int) -> int:
        return self._jitter.randrange(stop)
