"""The server's side of PLAIN (RFC 4616): name and password in one token.

Passwords are compared by their hashes in constant time. An unknown name is compared with an empty password, so that time and message are
the same as for a wrong password. Acting for another name (authzid) is refused, as in Kafka.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from ottla.security.authentication import StepResult

MECHANISM = "PLAIN"
INVALID = "Authentication failed: Invalid username or password"


class PlainServer:
    """One authentication (`authentication.Exchange`)."""

    def __init__(self, users: Callable[[], Mapping[str, str]]) -> None:
        """`users` returns the current passwords by name. It is called at each login and each later check that the user still exists."""
        self._users = users

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        done(self._judge(token))

    def _judge(self, token: bytes) -> StepResult:
        parts = token.split(b"\0")
        if len(parts) != 3:
            return StepResult(error=f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            authorized_as, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            return StepResult(error=INVALID)
        if not name:
            return StepResult(error="Authentication failed: username not specified")
        if not password:
            return StepResult(error="Authentication failed: password not specified", claimed=name)
        expected = self._users().get(name)
        is_right = hmac.compare_digest(_hash(password), _hash(expected or "")) and expected is not None
        if not is_right:
            return StepResult(error=INVALID, claimed=name)
        if authorized_as not in ("", name):
            error = "Authentication failed: Client requested an authorization id that is different from username"
            return StepResult(error=error, claimed=name)
        return StepResult(principal=f"User:{name}", is_valid=lambda: self._users().get(name) is not None)


def _hash(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
