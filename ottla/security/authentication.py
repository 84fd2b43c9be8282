"""SASL authentication of a connection: the client chooses a mechanism, tokens are exchanged, and the result is a principal or a closed
connection.

`Authentication` is the state of one connection. An `Exchange` is one run of a mechanism. It may answer later, because passwords are hashed
outside the event loop; the connection executes no request meanwhile (`server/connection.py`). An authenticated client may authenticate
again (KIP-368), by the same mechanism and as the same principal. After its session has ended, the client must authenticate again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode


class StepResult(NamedTuple):
    """The result of a step: a token for the client, the principal if this was the last step, or why the client is refused."""

    token: bytes = b""
    principal: str | None = None
    error: str | None = None
    reason: str = ""
    """A more detailed reason for the log; empty if `error` has all details."""
    claimed: str = ""
    """The name that a refused client gave, for the log."""
    is_valid: Callable[[], bool] | None = None
    """Whether the client's user still exists, or its delegation token exists and still lasts until `ends_ms`. A changed password does not
    matter. None if the credentials cannot be revoked."""
    ends_ms: int | None = None
    """Wall time at which the credentials expire."""
    is_by_token: bool = False
    """Whether the client logged in by a delegation token. Such a client must not create tokens."""


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        """Processes the client's next token; calls `done` once, now or later."""


Mechanisms = Mapping[str, Callable[[], Exchange]]
"""The mechanisms of a listener by name. Each function starts an exchange."""


class AuthenticationState(Enum):
    UNDECIDED = "undecided"
    EXCHANGING = "exchanging"
    AUTHENTICATED = "authenticated"
    ENDED = "session ended"
    REFUSED = "refused"


_STATES = AuthenticationState
ALLOWED = {
    _STATES.UNDECIDED: {_STATES.EXCHANGING, _STATES.REFUSED},
    _STATES.EXCHANGING: {_STATES.AUTHENTICATED, _STATES.REFUSED},
    _STATES.AUTHENTICATED: {_STATES.EXCHANGING, _STATES.ENDED, _STATES.REFUSED},
    _STATES.ENDED: {_STATES.EXCHANGING, _STATES.REFUSED},
    _STATES.REFUSED: set(),
}


class Authentication:
    """The authentication of one connection."""

    def __init__(self, mechanisms: Mechanisms) -> None:
        self.mechanisms = mechanisms
        self.state = _STATES.UNDECIDED
        self.mechanism = ""
        self.principal: str | None = None
        """The authenticated principal. Authenticating again does not change it."""
        self.is_valid: Callable[[], bool] | None = None
        self.is_by_token = False
        """Whether the client logged in by a delegation token."""
        self._exchange: Exchange | None = None

    @property
    def is_refused(self) -> bool:
        return self.state is _STATES.REFUSED

    @property
    def has_authenticated(self) -> bool:
        """Whether the client has authenticated; it may be authenticating again."""
        return self.principal is not None

    def choose(self, mechanism: str) -> ErrorCode:
        """Starts an exchange by the named mechanism and returns NONE. Refuses the client for an unknown mechanism
        (UNSUPPORTED_SASL_MECHANISM), and for a choice during an exchange (ILLEGAL_SASL_STATE). Not called after a refusal."""
        begin = self.mechanisms.get(mechanism)
        if self.state is _STATES.EXCHANGING or begin is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if begin is None else ErrorCode.ILLEGAL_SASL_STATE
            self._move(_STATES.REFUSED)
            return code
        self._exchange = begin() if mechanism == (self.mechanism or mechanism) else _OtherMechanism(mechanism, self.mechanism)
        self.mechanism = self.mechanism or mechanism
        self._move(_STATES.EXCHANGING)
        return ErrorCode.NONE

    def step(self, token: bytes, done: Callable[[ErrorCode, StepResult], None]) -> None:
        """Processes the client's next token. Calls `done` with the answer after the state has changed. A token without an exchange gets
        ILLEGAL_SASL_STATE."""
        exchange = self._exchange
        if exchange is None:
            self._move(_STATES.REFUSED)
            done(ErrorCode.ILLEGAL_SASL_STATE, StepResult(error="SaslAuthenticate request received before SaslHandshake"))
            return

        def stepped(outcome: StepResult) -> None:
            outcome = self._same_principal(outcome)
            if outcome.error is not None:
                self._move(_STATES.REFUSED)
                done(ErrorCode.SASL_AUTHENTICATION_FAILED, outcome)
                return
            if outcome.principal is not None:
                self._exchange = None
                self.principal, self.is_valid, self.is_by_token = outcome.principal, outcome.is_valid, outcome.is_by_token
                self._move(_STATES.AUTHENTICATED)
            done(ErrorCode.NONE, outcome)

        exchange.step(token, stepped)

    def end_session(self) -> None:
        if self.state is _STATES.AUTHENTICATED:
            self._move(_STATES.ENDED)

    def refuse(self) -> None:
        self._move(_STATES.REFUSED)

    def _same_principal(self, outcome: StepResult) -> StepResult:
        """Refuses a client that authenticates again as another principal."""
        if self.principal is None or outcome.principal in (None, self.principal):
            return outcome
        claimed = str(outcome.principal)
        return StepResult(error=f"Cannot change principals during re-authentication from {self.principal}: {claimed}", claimed=claimed)

    def _move(self, state: AuthenticationState) -> None:
        assert state in ALLOWED[self.state], f"from {self.state} to {state}"
        self.state = state


class _OtherMechanism:
    """The exchange of a client that authenticates again by another mechanism. Its first token is refused, as in Kafka."""

    def __init__(self, mechanism: str, before: str) -> None:
        self._error = (
            f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism '{before}'"
        )

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        done(StepResult(error=self._error))
