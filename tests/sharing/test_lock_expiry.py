"""The locks of acquired records end: what is available again, and what has been delivered often enough."""

from __future__ import annotations

from ottla.sharing.in_flight import ACQUIRED, ARCHIVED, AVAILABLE, InFlight
from ottla.sharing.lock_expiry import expire, next_deadline_ms


def test_locks_run_out() -> None:
    flight = InFlight(0)
    flight.append(9, ACQUIRED, 1, "a", 100)
    flight.append(19, ACQUIRED, 5, "a", 200)
    assert (next_deadline_ms(flight), expire(flight, 99, 5)) == (100, [])
    assert [run.state for run in expire(flight, 100, 5)] == [AVAILABLE]
    assert [run.state for run in expire(flight, 300, 5)] == [ARCHIVED]
    assert next_deadline_ms(flight) is None
