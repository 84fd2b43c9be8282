"""The bearer token of a broker for its logins to other brokers. All connections share it.

Tokens are fetched in a thread, one at a time. The next token is fetched before the current one expires, even if no connection needs it, so
that sessions are renewed without waiting (`client/core/login_renewal.py`). If that fails, the current token is used until it expires. After
a failed fetch, and after another broker has refused the token, logins fail immediately for `PAUSE_MS`. This protects the issuer of tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import ApiError, ErrorCode, OttlaError
from ottla.base.ports import Clock, LoginToken, Threads, TimerHandle, Timers, TokenSource

log = logging.getLogger("ottla.security")

PAUSE_MS = 1_000
"""Pause after a failure, and minimum time before a scheduled fetch, in milliseconds."""

TokenReceived = Callable[[LoginToken | None, OttlaError | None], object]


class BrokerTokens:
    """The current token, its renewal, and the logins that wait for a token."""

    def __init__(self, source: TokenSource, threads: Threads, clock: Clock, timers: Timers) -> None:
        self._source = source
        self._threads = threads
        self._clock = clock
        self._timers = timers
        self._token: LoginToken | None = None
        self._ends_ms = 0.0
        self._waiting: list[TokenReceived] = []
        self._is_fetching = self._is_closed = False
        self._failure: OttlaError | None = None
        self._pause_ends_ms = 0.0
        self._timer: TimerHandle | None = None
        self._is_failing = False
        """Whether a failure was logged and no success since."""

    def get(self, done: TokenReceived) -> None:
        """Calls `done`, now or later, with a valid token, or with None and the error."""
        if self._token is not None and self._clock.wall_ms() < self._ends_ms:
            done(self._token, None)
        elif self._failure is not None and (self._is_closed or self._clock.monotonic_ms() < self._pause_ends_ms):
            done(None, self._failure)
        else:
            self._waiting.append(done)
            self._fetch()

    def refused(self, token: LoginToken) -> None:
        """Drops a token that another broker has refused."""
        if token is not self._token:
            return
        self._source.discard(token)
        self._token = None
        self._fail(ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the token of this broker was refused"))

    def close(self) -> None:
        """Stops fetching; fails the callbacks that wait."""
        self._is_closed = True
        self._cancel_timer()
        self._token, self._failure = None, ApiError(ErrorCode.NETWORK_EXCEPTION, "this broker does not log in any more")
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(None, self._failure)

    def _fetch(self) -> None:
        if not self._is_fetching and not self._is_closed:
            self._is_fetching = True
            self._cancel_timer()
            self._threads.run(self._try, self._fetched)

    def _try(self) -> LoginToken | OttlaError:
        """Fetches a token, in a thread."""
        try:
            return self._source.token()
        except OttlaError as error:
            return error

    def _fetched(self, found: LoginToken | OttlaError) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        waiting, self._waiting = self._waiting, []
        if isinstance(found, OttlaError):
            self._token = None
            self._fail(found)
            self._note(found, "this broker cannot log in to others")
        else:
            self._token, self._failure, self._ends_ms = found, None, self._source.ends_s * 1000
            self._note(self._source.failure, "the current token is used until it expires")
            delay_ms = max(self._source.due_s * 1000 - self._clock.wall_ms(), PAUSE_MS)
            self._timer = self._timers.call_later(delay_ms, self._fetch)
        for done in waiting:
            done(self._token, self._failure)

    def _fail(self, error: OttlaError) -> None:
        self._failure = error
        self._pause_ends_ms = self._clock.monotonic_ms() + PAUSE_MS

    def _note(self, failure: OttlaError | None, consequence: str) -> None:
        """Logs one line at the first failure, and one at the next success."""
        if failure is not None and not self._is_failing:
            log.warning("%s; %s", failure, consequence)
        elif failure is None and self._is_failing:
            log.info("tokens for logins to other brokers are available again")
        self._is_failing = failure is not None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
