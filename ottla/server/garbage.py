"""Keeps collections of garbage short, however much the broker holds.

CPython's collector stops the loop while it walks over objects, in a full collection over all of them: 10 ms and more for each 100,000.
What a full collection has found in use is frozen here (`gc.freeze`), so that the next one walks only over what is younger, and every object
is walked over by one of them at most. Reference counts free frozen objects as they do others; what is missed is a cycle of references that
has become garbage after it was frozen.

So what clients can create and drop leaves no cycles: whatever ends breaks its own, and `tests/server/test_cycles.py` counts what the
collector would have had to find behind topics, groups, transactions, sessions and connections: nothing. A walk over everything, which
would take 1.0 s where 37,000 topics are held, is therefore made only when memory says that something was missed. All that clients can cause
is bounded by `ottla.memory.max.bytes` (`tests/hostile/test_attacks_memory.py`, with an allowance); a process that has grown by more than
that has garbage, or a defect. The walk waits for a moment when little is asked of the broker, ten minutes at most, and the next one for
memory to be a quarter larger than after it, so that a walk that has found nothing is not made again and again.

That is the price: a cycle that was missed stays until the process has grown by all that. It is never more, and the line in the log says
how much there was.

Memory that is free again after a flood of requests is in pieces, which the C library keeps. It is given back to the system when the process
has become much larger or smaller since the last time.

Left out: a walk over a part of what is frozen (CPython can thaw all or nothing); looking for garbage in a forked child (the child's walk
writes to each object, so that its memory is all of the broker's once more).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping
from time import thread_time

from ottla.adapters.process_memory import resident_bytes

log = logging.getLogger("ottla")

OLDEST_GENERATION = 2
YOUNGER_PER_FULL_COLLECTION = 2
"""A full collection follows on so many of the generation before it and one more, not on ten: as everything is frozen after each, it walks
over some 25,000 young objects, not over 85,000, which is 10 ms and not 40 where each has a hundred references."""
ALLOWANCE_BYTES = 100 << 20
"""What a broker may have more than `ottla.memory.max.bytes` while it is attacked."""
GROWTH_PER_WALK = 1.25
CHANGE_BYTES = 64 << 20
"""Free memory is given back to the system when the process has grown or shrunk by so much. 64 MiB: a flood that takes less leaves less."""
LOOK_SECONDS = 10
QUIET_SECONDS = 1.0
"""A walk may hold up the loop where it has worked no longer than this since the last look."""
OVERDUE_LOOKS = 60
"""At so many looks in a row that find too much memory, a walk does not wait for a quiet moment."""


class Garbage:
    """The policy of one process, from `begin` to `end`."""

    def __init__(
        self,
        memory_max_bytes: int,
        memory_bytes: Callable[[], int] = resident_bytes,
        worked_seconds: Callable[[], float] = thread_time,
    ) -> None:
        """`memory_max_bytes`: what all clients together may take; `memory_bytes`: what the process has; `worked_seconds`: the processor
        time of the loop's thread."""
        self._allowed_bytes = memory_max_bytes + ALLOWANCE_BYTES
        self._memory_bytes = memory_bytes
        self._worked_seconds = worked_seconds
        self._worked_before = 0.0
        self._suspicious_bytes = 0
        """From here on memory is more than what is known of explains."""
        self._suspicious_looks = 0
        self._given_back_bytes = 0
        """What the process had when free memory was given back last."""
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Freezes what the start has made, and from now on what full collections leave."""
        gc.callbacks.append(self._on_collection)
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], YOUNGER_PER_FULL_COLLECTION)
        gc.freeze()
        self._given_back_bytes = self._memory_bytes()
        self._suspicious_bytes = self._given_back_bytes + self._allowed_bytes
        self._worked_before = self._worked_seconds()

    def end(self) -> None:
        """The process is about to end. Freezes everything, else the interpreter would walk over all objects once more: 5 s of a stop with
        50,000 partitions."""
        gc.callbacks.remove(self._on_collection)
        gc.set_threshold(*self._thresholds)
        gc.freeze()

    def look(self) -> None:
        """Walks over everything if it is time for that; called every `LOOK_SECONDS`."""
        worked = self._worked_seconds()
        is_quiet = worked - self._worked_before <= QUIET_SECONDS
        self._suspicious_looks = self._suspicious_looks + 1 if self._memory_bytes() >= self._suspicious_bytes else 0
        if self._suspicious_looks and (is_quiet or self._suspicious_looks >= OVERDUE_LOOKS):
            self._walk()
            worked = self._worked_seconds()
        self._worked_before = worked

    def should_give_back(self) -> bool:
        """Whether free memory should be given back to the system now; called every `LOOK_SECONDS`."""
        return abs(self._memory_bytes() - self._given_back_bytes) >= CHANGE_BYTES

    def note_given_back(self) -> None:
        """Free memory has been given back."""
        self._given_back_bytes = self._memory_bytes()

    def _walk(self) -> None:
        before_bytes, began = self._memory_bytes(), self._worked_seconds()
        gc.unfreeze()
        found = gc.collect()
        gc.collect()  # of nothing: the next full collection waits for a quarter as many young objects as the last one has left
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
