"""SASL from the client's side, as steps: a mechanism gives the tokens to send and checks the answers. PLAIN (RFC 4616) and SCRAM."""

from __future__ import annotations

from typing import Protocol

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslExchange(Protocol):
    """One authentication on one connection."""

    mechanism: str

    def first(self) -> bytes:
        """The token that opens the exchange."""

    def answer(self, challenge: bytes) -> bytes | None:
        """The token for the server's; None when the exchange is complete. ValueError when the server breaks the protocol."""


class PlainExchange:
    """Name and password in one token."""

    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class ScramExchange:
    """Two tokens and a check that the server knows the password too (RFC 5802). `nonce` is fresh randomness as printable text."""

    def __init__(self, username: str, password: str, mechanism: str, nonce: str, *, is_by_token: bool = False) -> None:
        from ottla.security.scram import ScramClient

        self.mechanism = mechanism
        self._scram = ScramClient(username, password, mechanism, nonce, is_by_token=is_by_token)
        self._has_proved = False

    def first(self) -> bytes:
        return self._scram.first()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._has_proved:
            self._scram.check(challenge)
            return None
        self._has_proved = True
        return self._scram.final(challenge)


def exchange(mechanism: str, username: str, password: str, nonce: str, *, is_by_token: bool = False) -> SaslExchange:
    """The exchange for one of `MECHANISMS`; `is_by_token` is for SCRAM (`ScramClient`)."""
    if mechanism == "PLAIN":
        return PlainExchange(username, password)
    return ScramExchange(username, password, mechanism, nonce, is_by_token=is_by_token)
