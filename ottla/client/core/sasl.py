"""SASL for clients: PLAIN (RFC 4616), SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628). A mechanism makes the client's tokens and checks the
broker's answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.base.ports import LoginToken

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


class SaslExchange(Protocol):
    """One authentication on one connection."""

    mechanism: str

    def first(self) -> bytes:
        """Returns the first token of the exchange."""

    def slow_part(self, challenge: bytes) -> Callable[[], object] | None:
        """Returns the slow part of answering this challenge, to run in a thread before `answer`; None if answering is quick."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Returns the answer to the server's token, None if the exchange is complete. Raises ValueError if the server breaks the protocol
        or has refused the login.
        """


class PlainExchange:
    """Name and password in one token."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def slow_part(self, challenge: bytes) -> None:
        return None

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class ScramExchange:
    """Two tokens, and a check that the server knows the password too (RFC 5802). `nonce` is random printable text."""

    def __init__(self, username: str, password: str, mechanism: str, nonce: str, *, is_by_token: bool = False) -> None:
        from ottla.security.scram import ScramClient

        self.mechanism = mechanism
        self._scram = ScramClient(username, password, mechanism, nonce, is_by_token=is_by_token)
        self._has_proved = False

    def first(self) -> bytes:
        return self._scram.first()

    def slow_part(self, challenge: bytes) -> Callable[[], object] | None:
        return None if self._has_proved else partial(self._scram.hash_ahead, challenge)

    def answer(self, challenge: bytes) -> bytes | None:
        if self._has_proved:
            self._scram.check(challenge)
            return None
        self._has_proved = True
        return self._scram.final(challenge)


class BearerExchange:
    """One bearer token. If the broker refuses it, the broker sends a status; the exchange calls `refused` and confirms the status by one
    byte.
    """

    mechanism = OAUTHBEARER

    def __init__(self, token: LoginToken, refused: Callable[[], object] = lambda: None) -> None:
        self._token = token
        self._refused = refused
        self._status: str | None = None

    def first(self) -> bytes:
        return self._token.first_message()

    def slow_part(self, challenge: bytes) -> None:
        return None

    def answer(self, challenge: bytes) -> bytes | None:
        if self._status is not None:
            raise ValueError(f"the token is refused ({self._status})")
        if not challenge:
            return None
        self._status = _status_of(challenge)
        self._refused()
        return b"\x01"


def _status_of(challenge: bytes) -> str:
    import json

    try:
        found = json.loads(challenge).get("status")
    except (ValueError, AttributeError, RecursionError):
        found = None
    return found if isinstance(found, str) and found.isascii() and found.isprintable() else "no status"


def exchange(mechanism: str, username: str, password: str, nonce: str, *, is_by_token: bool = False) -> SaslExchange:
    """Returns the exchange for PLAIN or SCRAM. `is_by_token`: the two texts are the id and HMAC of a delegation token."""
    if mechanism == "PLAIN":
        return PlainExchange(username, password)
    return ScramExchange(username, password, mechanism, nonce, is_by_token=is_by_token)
