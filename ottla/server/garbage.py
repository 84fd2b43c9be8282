"""Keeps collections of garbage short, however much the broker holds.

CPython's collector stops the loop while it walks over objects, in a full collection over all of them: 10 ms and more for each 100,000.
What a full collection has found in use is frozen here (`gc.freeze`), so that the next one walks only over what is younger, and every object
is walked over by one of them at most. Reference counts free frozen objects as they do others; what is missed is a cycle of references that
has become garbage after it was frozen. A connection that closes breaks its own, and so does a wait that is over; for others everything is
walked over once more when there are twice as many objects as after the last such walk.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

OLDEST_GENERATION = 2
GROWTH_MIN = 200_000
"""Fewer objects more are not worth a walk over everything: some 20 MiB."""
LOOK_SECONDS = 10


class Garbage:
    """The policy of one process, from `begin` to `end`."""

    def __init__(self, growth_min: int = GROWTH_MIN) -> None:
        self._growth_min = growth_min
        self._in_use = 0

    def begin(self) -> None:
        """Freezes what the start has made, and from now on what full collections leave."""
        gc.callbacks.append(self._on_collection)
        gc.freeze()
        self._in_use = gc.get_freeze_count()

    def end(self) -> None:
        """Leaves collections as they were before."""
        gc.callbacks.remove(self._on_collection)
        gc.unfreeze()

    def look(self) -> None:
        """Walks over everything if the number of objects has doubled since that was done last; called now and then."""
        if gc.get_freeze_count() >= self._in_use + max(self._in_use, self._growth_min):
            gc.unfreeze()
            gc.collect()
            self._in_use = gc.get_freeze_count()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "stop" and info["generation"] == OLDEST_GENERATION:
            gc.freeze()
