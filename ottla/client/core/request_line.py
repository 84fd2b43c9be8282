"""Keeps the requests of one non-blocking connection in order: the requests in flight, and the requests that wait for a new login.

If the broker limits the lifetime of sessions (KIP-368), requests shortly before the end of the session are held back. The caller begins a
new login (`begins_login`) when all requests in flight are answered, and sends the held requests after it (`logged_in`).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from ottla.base.errors import OttlaError
from ottla.client.core.connection import ConnectionProtocol
from ottla.client.core.login_renewal import LoginRenewal
from ottla.wire.schema import Request

W = TypeVar("W")


class RequestLine(Generic[W]):
    """See the module. The type variable `W` is the caller's object for a request, such as a future.

    `share`: see `LoginRenewal`. Without `may_login_again` no request is held.
    """

    def __init__(self, protocol: ConnectionProtocol, share: float, *, may_login_again: bool = True) -> None:
        self.in_flight: deque[W] = deque()
        self.held: deque[tuple[Request, int | None, W]] = deque()
        self._protocol = protocol
        self._renewal = LoginRenewal(share)
        self._may_login_again = may_login_again
        self._logs_in_again = False

    def __len__(self) -> int:
        return len(self.in_flight) + len(self.held)

    @property
    def is_open(self) -> bool:
        """Whether requests are accepted. They are sent or held."""
        return self._protocol.is_ready or self._logs_in_again

    @property
    def first(self) -> W | None:
        return self.in_flight[0] if self.in_flight else self.held[0][2] if self.held else None

    def ask(self, body: Request, version: int | None, waiter: W, now_s: float) -> bytes | None:
        """Returns the frame to send, or None if the request is held."""
        if self.held or self._logs_in_again or (self._renewal.is_due(now_s) and self.is_open):
            self.held.append((body, version, waiter))
            return None
        frame = self._protocol.request(body, version=version)
        self.in_flight.append(waiter)
        return frame

    def begins_login(self) -> bool:
        """Whether the caller has to begin a new login now. After True all requests are held."""
        if self.in_flight or self._logs_in_again or not self.held:
            return False
        self._logs_in_again = True
        return True

    def logged_in(self, now_s: float) -> list[tuple[W, bytes | OttlaError]]:
        """Notes the end of a login. Returns the held requests, each with its frame to send or with an error."""
        if self._may_login_again:
            self._renewal.logged_in(self._protocol.session_lifetime_ms, now_s)
        self._logs_in_again = False
        held, self.held = self.held, deque()
        return [(waiter, self._frame(body, version, waiter)) for body, version, waiter in held]

    def _frame(self, body: Request, version: int | None, waiter: W) -> bytes | OttlaError:
        try:
            frame = self._protocol.request(body, version=version)
        except OttlaError as error:
            return error
        self.in_flight.append(waiter)
        return frame

    def close(self) -> list[W]:
        """Closes the `ConnectionProtocol`. Returns all unanswered requests, oldest first."""
        self._protocol.close()
        left = [*self.in_flight, *(waiter for _body, _version, waiter in self.held)]
        self.in_flight, self.held = deque(), deque()
        self._logs_in_again = False
        return left
