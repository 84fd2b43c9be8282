"""The end of the locks of acquired records: the records are released, as if their owner had released them."""

from __future__ import annotations

from ottla.sharing.acknowledgement import RELEASE, outcome
from ottla.sharing.in_flight import ACQUIRED, InFlight, OffsetRun


def expire(flight: InFlight, now_ms: int, delivery_count_max: int) -> list[OffsetRun]:
    """Releases the records with an expired lock at once; returns their runs. The caller writes the change afterwards."""
    late = [run for run in flight.runs if run.state is ACQUIRED and run.target is None and run.deadline_ms <= now_ms]
    for run in late:
        flight.set_state(run, outcome(run, RELEASE, delivery_count_max))
    return late


def next_deadline_ms(flight: InFlight) -> int | None:
    """Returns the time at which the first lock expires; None without locks. Locks with an acknowledgement in progress are not counted."""
    return min((run.deadline_ms for run in flight.runs if run.state is ACQUIRED and run.target is None), default=None)
