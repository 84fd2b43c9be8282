"""Keeps garbage collections short, however many objects the broker holds.

CPython's collector stops the loop while it walks over objects: a full collection takes 10 ms and more for each 100,000. Here each full
collection freezes the surviving objects (`gc.freeze`), so later ones walk only over younger objects. Reference counts still free frozen
objects. Only a cycle of references that became garbage after it was frozen is missed.

So the objects that clients can create and drop must leave no cycles (`tests/server/test_cycles.py`). A walk over everything takes 1.0 s
with 37,000 topics. It is made only if the process has grown by more than `ottla.memory.max.bytes` and an allowance, which clients cannot
cause (`tests/hostile/test_attacks_memory.py`): then there is garbage, or a defect. The walk waits for a quiet moment, ten minutes at most,
and logs how much garbage there was. The next walk waits until memory is a quarter larger than after the last one, so that a useless walk is
not repeated.

After a flood of requests the free memory is fragmented, and the C library keeps it. This module returns it to the system when the process
has become much larger or smaller since the last time, and once more half a minute later: what a flood frees after the first time may leave
the size as it is.

Not possible: a walk over a part of the frozen objects, because CPython can thaw only all. Not useful: a walk in a forked child, because it
writes to each object, which doubles the broker's memory.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from time import thread_time

from ottla.adapters.process_memory import resident_bytes

log = logging.getLogger("ottla")

OLDEST_GENERATION = 2
THRESHOLDS = (700, 10, 2)
"""New objects before a collection of the youngest generation, and collections of a generation before one of the next. The first two are
the defaults of CPython 3.11; since 3.12 the first one is 2,000. The third one is 10 by default. Objects are frozen after each full
collection, so it walks over about 25,000 young objects instead of 85,000: 10 ms instead of 40 if each has a hundred references."""
ALLOWANCE_BYTES = 100 << 20
"""Memory beyond `ottla.memory.max.bytes` that a broker may have while it is attacked."""
GROWTH_PER_WALK = 1.25
CHANGE_BYTES = 64 << 20
"""Change of the process's size after which free memory is returned to the system. 64 MiB: a smaller change is not worth the call."""
AGAIN_LOOKS = 3
"""Looks after a change of the size until free memory is returned once more. 3 looks are half a minute."""
LOOK_SECONDS = 10
QUIET_SECONDS = 1.0
"""A moment is quiet if the loop's thread has used at most this many seconds of CPU since the last look."""
OVERDUE_LOOKS = 60
"""After this many consecutive looks that find too much memory, a walk does not wait for a quiet moment: 10 minutes."""


class Garbage:
    """The policy of one process, from `begin` to `end`."""

    def __init__(
        self,
        memory_max_bytes: int,
        memory_bytes: Callable[[], int] = resident_bytes,
        worked_seconds: Callable[[], float] = thread_time,
    ) -> None:
        """`memory_max_bytes` is the limit of all clients together. `memory_bytes` returns the size of the process, `worked_seconds` the CPU
        time of the loop's thread."""
        self._allowed_bytes = memory_max_bytes + ALLOWANCE_BYTES
        self._memory_bytes = memory_bytes
        self._worked_seconds = worked_seconds
        self._worked_before = 0.0
        self._suspicious_bytes = 0
        """If the process is larger than this, missed cycles are suspected."""
        self._suspicious_looks = 0
        self._given_back_bytes = 0
        """The size of the process when free memory was returned last."""
        self._looks_left = 0
        """Looks until free memory is returned once more; 0 or less if it is not."""
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Freezes the objects of the start, and from now on the objects that survive full collections."""
        gc.callbacks.append(self._on_collection)
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        gc.freeze()
        self._given_back_bytes = self._memory_bytes()
        self._suspicious_bytes = self._given_back_bytes + self._allowed_bytes
        self._worked_before = self._worked_seconds()

    def end(self) -> None:
        """Freezes everything before the process ends. Otherwise the interpreter would walk over all objects again, which takes 5 s with
        50,000 partitions."""
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.freeze()

    def look(self) -> None:
        """Walks over all objects if the process is suspiciously large, and the moment is quiet or the walk overdue. Called every
        `LOOK_SECONDS`."""
        worked = self._worked_seconds()
        is_quiet = worked - self._worked_before <= QUIET_SECONDS
        self._suspicious_looks = self._suspicious_looks + 1 if self._memory_bytes() >= self._suspicious_bytes else 0
        if self._suspicious_looks and (is_quiet or self._suspicious_looks >= OVERDUE_LOOKS):
            self._walk()
            worked = self._worked_seconds()
        self._worked_before = worked

    def should_give_back(self) -> bool:
        """Whether free memory should be returned to the system now; called every `LOOK_SECONDS`."""
        if abs(self._memory_bytes() - self._given_back_bytes) >= CHANGE_BYTES:
            self._looks_left = AGAIN_LOOKS
            return True
        self._looks_left -= 1
        return self._looks_left == 0

    def note_given_back(self) -> None:
        self._given_back_bytes = self._memory_bytes()

    def _walk(self) -> None:
        before_bytes, began = self._memory_bytes(), self._worked_seconds()
        gc.unfreeze()
        found = gc.collect()
        gc.collect()  # No object is left unfrozen. CPython delays a full collection by the number of objects that the last one kept.
        after_bytes = self._memory_bytes()
        took_ms = (self._worked_seconds() - began) * 1000
        self._suspicious_bytes = max(self._suspicious_bytes, round(after_bytes * GROWTH_PER_WALK))
        self._suspicious_looks = 0
        log.warning(
            "the process has %d MiB, more than ottla.memory.max.bytes explains: %d objects were garbage, %d MiB are left, after %d ms",
            before_bytes >> 20, found, after_bytes >> 20, took_ms,
        )  # fmt: skip

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == OLDEST_GENERATION:
            gc.freeze()
