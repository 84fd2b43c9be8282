"""Keeps collections of garbage short, however much the broker holds.

CPython's collector stops the loop while it walks over objects, in a full collection over all of them: 10 ms and more for each 100,000.
What a full collection has found in use is frozen here (`gc.freeze`), so that the next one walks only over what is younger, and every object
is walked over by one of them at most. Reference counts free frozen objects as they do others; what is missed is a cycle of references that
has become garbage after it was frozen. A connection that closes breaks its own, and so does a wait that is over; for others everything is
walked over once more when there are twice as many objects as after the last such walk, and little is asked of the broker just now; when
there are eight times as many and ten minutes have passed, in any case. (Under load at once, a client that has thousands of topics created
would have everybody wait for a walk over them: 0.7 s for 13,000.)

How many objects are frozen is not asked (`gc.get_freeze_count`): CPython counts them one by one. The number of allocated blocks grows with
them and takes a look at each 16 KiB only.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from time import thread_time

OLDEST_GENERATION = 2
YOUNGER_PER_FULL_COLLECTION = 2
"""A full collection follows on so many of the generation before it and one more, not on ten: as everything is frozen after each, it walks
over some 25,000 young objects, not over 85,000, which is 10 ms and not 40 where each has a hundred references."""
GROWTH_MIN = 300_000
"""Fewer blocks more are not worth a walk over everything: some 20 MiB."""
LOOK_SECONDS = 10
QUIET_SECONDS = 1.0
"""A walk may hold up the loop where it has worked no longer than this since the last look."""
OVERDUE_FACTOR = 8
OVERDUE_LOOKS = 60
"""So many looks lie between a walk and the next one that does not wait for a quiet moment."""


class Garbage:
    """The policy of one process, from `begin` to `end`."""

    def __init__(self, growth_min: int = GROWTH_MIN, worked_seconds: Callable[[], float] = thread_time) -> None:
        """`worked_seconds`: the processor time of the loop's thread."""
        self._growth_min = growth_min
        self._worked_seconds = worked_seconds
        self._worked_before = 0.0
        self._in_use = 0
        self._looks = 0  # since everything was walked over
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Freezes what the start has made, and from now on what full collections leave."""
        gc.callbacks.append(self._on_collection)
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], YOUNGER_PER_FULL_COLLECTION)
        gc.freeze()
        self._note_walk()
        self._worked_before = self._worked_seconds()

    def end(self) -> None:
        """Leaves collections as they were before."""
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def look(self) -> None:
        """Walks over everything if it is time for that; called every `LOOK_SECONDS`."""
        worked = self._worked_seconds()
        is_quiet = worked - self._worked_before <= QUIET_SECONDS
        blocks, in_use = sys.getallocatedblocks(), self._in_use
        self._looks += 1
        is_due = blocks >= in_use + max(in_use, self._growth_min)
        is_overdue = blocks >= OVERDUE_FACTOR * in_use and self._looks >= OVERDUE_LOOKS
        if is_due and (is_quiet or is_overdue):
            gc.unfreeze()
            gc.collect()
            self._note_walk()
            worked = self._worked_seconds()
        self._worked_before = worked

    def _note_walk(self) -> None:
        self._in_use, self._looks = sys.getallocatedblocks(), 0

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == OLDEST_GENERATION:
            gc.freeze()
