"""How a connection authenticates by SASL: a mechanism is chosen, tokens go to and fro, and a principal comes out or the connection ends.

`Authentication` is one connection's state. What a mechanism does with the tokens is its `Exchange`; it may answer later, because hashing
belongs off the loop, and the connection executes nothing meanwhile (`server/connection.py`). Left out: the mechanisms themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode


class Outcome(NamedTuple):
    """What a step came to: a token for the client, the principal if this was the last step, or why the client is refused."""

    token: bytes = b""
    principal: str | None = None
    error: str | None = None


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def step(self, token: bytes, done: Callable[[Outcome], None]) -> None:
        """Takes the client's next token; calls `done` once, now or later."""


Mechanisms = Mapping[str, Callable[[], Exchange]]
"""The mechanisms of a listener by name; each call begins an exchange."""


class AuthenticationState(Enum):
    UNDECIDED = "undecided"
    EXCHANGING = "exchanging"
    AUTHENTICATED = "authenticated"
    REFUSED = "refused"


ALLOWED = {
    AuthenticationState.UNDECIDED: {AuthenticationState.EXCHANGING, AuthenticationState.REFUSED},
    AuthenticationState.EXCHANGING: {AuthenticationState.AUTHENTICATED, AuthenticationState.REFUSED},
    AuthenticationState.AUTHENTICATED: set(),
    AuthenticationState.REFUSED: set(),
}


class Authentication:
    """The authentication of one connection."""

    def __init__(self, mechanisms: Mechanisms) -> None:
        self.mechanisms = mechanisms
        self.state = AuthenticationState.UNDECIDED
        self._exchange: Exchange | None = None

    @property
    def is_refused(self) -> bool:
        return self.state is AuthenticationState.REFUSED

    def choose(self, mechanism: str) -> ErrorCode:
        """The client names its mechanism; a second choice and an unknown mechanism end the connection."""
        begin = self.mechanisms.get(mechanism)
        if self.state is not AuthenticationState.UNDECIDED or begin is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if begin is None else ErrorCode.ILLEGAL_SASL_STATE
            self._move(AuthenticationState.REFUSED)
            return code
        self._exchange = begin()
        self._move(AuthenticationState.EXCHANGING)
        return ErrorCode.NONE

    def step(self, token: bytes, done: Callable[[ErrorCode, Outcome], None]) -> None:
        """The client's next token; `done` gets what is to be answered, after the state has changed."""
        exchange = self._exchange
        if exchange is None:
            self._move(AuthenticationState.REFUSED)
            done(ErrorCode.ILLEGAL_SASL_STATE, Outcome(error="SaslAuthenticate request received before SaslHandshake"))
            return

        def stepped(outcome: Outcome) -> None:
            if outcome.error is not None:
                self._move(AuthenticationState.REFUSED)
                done(ErrorCode.SASL_AUTHENTICATION_FAILED, outcome)
                return
            if outcome.principal is not None:
                self._move(AuthenticationState.AUTHENTICATED)
            done(ErrorCode.NONE, outcome)

        exchange.step(token, stepped)

    def refuse(self) -> None:
        """Ends the authentication: the connection closes."""
        self._move(AuthenticationState.REFUSED)

    def _move(self, state: AuthenticationState) -> None:
        assert state in ALLOWED[self.state], f"from {self.state} to {state}"
        self.state = state
