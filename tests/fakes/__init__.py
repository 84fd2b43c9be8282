"""Stand-ins for the world, one for each port of `ottla.base.ports`: time, timers, randomness and disk under a test's control.

None of them reads a real clock, a real file or an unseeded generator, so a test that uses only these gives the same answer each time.
"""

from __future__ import annotations

from tests.fakes.clock import ManualClock
from tests.fakes.disk import MemDisk, MemFile
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers

__all__ = ["ManualClock", "ManualTimers", "MemDisk", "MemFile", "SeededRandom"]
