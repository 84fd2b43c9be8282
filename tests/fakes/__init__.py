"""Fakes for tests, one for each interface of `ottla.base.ports`: time, timers, randomness and disk under a test's control. They read no
real clock, no real file and no unseeded generator, so a test that uses only fakes gives the same result each time.
"""

from __future__ import annotations

from tests.fakes.clock import ManualClock
from tests.fakes.disk import MemDisk, MemFile
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers

__all__ = ["ManualClock", "ManualTimers", "MemDisk", "MemFile", "SeededRandom"]
