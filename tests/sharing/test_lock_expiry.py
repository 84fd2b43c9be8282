"""Expired locks of acquired records: which records become available again, and which have reached the limit of deliveries."""

from __future__ import annotations

from ottla.sharing.acknowledgement import Rules
from ottla.sharing.in_flight import ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, InFlight
from ottla.sharing.lock_expiry import expire, next_deadline_ms

RULES = Rules(5, may_renew=True)


def test_locks_run_out() -> None:
    flight = InFlight(0)
    flight.append(9, ACQUIRED, 1, "a", 100)
    flight.append(19, ACQUIRED, 5, "a", 200)
    assert (next_deadline_ms(flight), expire(flight, 99, RULES)) == (100, ([], []))
    assert [run.state for run in expire(flight, 100, RULES)[0]] == [AVAILABLE]
    assert [run.state for run in expire(flight, 300, RULES)[0]] == [ARCHIVED]
    assert next_deadline_ms(flight) is None


def test_dead_letters_stay_locked_until_their_state_is_written() -> None:
    flight = InFlight(0)
    flight.append(9, ACQUIRED, 1, "a", 100)
    flight.append(19, ACQUIRED, 5, "a", 100)
    released, dead = expire(flight, 100, RULES._replace(has_dead_letters=True))
    assert [(run.first, run.state) for run in released] == [(0, AVAILABLE)]
    assert [(run.first, run.state, run.target) for run in dead] == [(10, ACQUIRED, ARCHIVING)]
    assert expire(flight, 200, RULES._replace(has_dead_letters=True)) == ([], [])
