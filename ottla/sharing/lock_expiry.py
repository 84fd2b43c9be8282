"""The end of the locks of acquired records: the records are released, as if their owner had released them."""

from __future__ import annotations

from ottla.sharing.acknowledgement import RELEASE, Rules, outcome
from ottla.sharing.in_flight import ACQUIRED, ARCHIVING, InFlight, OffsetRun


def expire(flight: InFlight, now_ms: int, rules: Rules) -> tuple[list[OffsetRun], list[OffsetRun]]:
    """Handles the records with an expired lock. Releases records at once, and returns their runs; the caller writes the change afterwards.
    Records that go to the dead-letter topic stay locked, and get the target ARCHIVING; their runs are returned second. They must not be
    copied before the caller has written this state.
    """
    late = [run for run in flight.runs if run.state is ACQUIRED and run.target is None and run.deadline_ms <= now_ms]
    released, dead = list[OffsetRun](), list[OffsetRun]()
    for run in late:
        state = outcome(run, RELEASE, rules)
        if state is ARCHIVING:
            run.target, run.was_rejected = state, False
            dead.append(run)
        else:
            flight.set_state(run, state)
            released.append(run)
    return released, dead


def next_deadline_ms(flight: InFlight) -> int | None:
    """Returns the time at which the first lock expires; None without locks. Locks with an acknowledgement in progress are not counted."""
    return min((run.deadline_ms for run in flight.runs if run.state is ACQUIRED and run.target is None), default=None)
