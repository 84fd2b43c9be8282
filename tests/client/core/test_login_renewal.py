"""When a client logs in again: within the session, and not all at once."""

from __future__ import annotations

from ottla.client.core.login_renewal import EARLIEST, LATEST, LoginRenewal


def due_s(share: float, lifetime_ms: int) -> float | None:
    renewal = LoginRenewal(share)
    renewal.logged_in(lifetime_ms, 100.0)
    return next((second / 10 for second in range(1000, 2000) if renewal.is_due(second / 10)), None)


def test_a_login_is_renewed_before_the_session_ends() -> None:
    assert (due_s(0.0, 10_000), due_s(1.0, 10_000)) == (100 + 10 * EARLIEST, 100 + 10 * LATEST)


def test_a_session_without_an_end_needs_no_other_login() -> None:
    assert due_s(0.0, 0) is None and not LoginRenewal(0.5).is_due(1e12)
