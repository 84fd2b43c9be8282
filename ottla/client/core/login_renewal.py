"""Decides when a client logs in again on a connection whose session the broker limits (KIP-368). Connections that were opened together log
in again at different times, so that a broker does not get all logins at once.
"""

from __future__ import annotations

from math import inf

EARLIEST, LATEST = 0.85, 0.95
"""Parts of a session after which clients log in again, as Kafka's do."""


class LoginRenewal:
    """The time of the next login of one connection."""

    def __init__(self, share: float) -> None:
        """`share` is a random number between 0 and 1. It places the next login between `EARLIEST` and `LATEST`."""
        self._part = EARLIEST + share * (LATEST - EARLIEST)
        self._due_s = inf

    def logged_in(self, lifetime_ms: int, now_s: float) -> None:
        """Sets the time of the next login. `lifetime_ms` is the lifetime of the session; 0 for a session without an end."""
        self._due_s = now_s + lifetime_ms / 1000 * self._part if lifetime_ms > 0 else inf

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s
