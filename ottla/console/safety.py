"""Sessions, form tokens and the headers of every answer.

A session is a random cookie. A form has a token: a time and a random number, signed with the key of the session. A page of another site
cannot make one, so the token stops forged requests. The result of an action is stored under its token, so a form that is sent twice acts
once. A console on the loopback address refuses requests with an unknown `Host`. Otherwise another site could make its own name resolve to
this machine (DNS rebinding), and its pages could read the console.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ottla.console.desk import Desk
from ottla.console.model import Done, PageError

COOKIE = "ottla_console"
TOKEN_AGE_MAX_S = 3_600
"""Maximum age of a form, in seconds. 1 h: results are kept at least as long unless a session sends more than `RESULTS_MAX` forms."""
RESULTS_MAX = 1_000
"""Maximum number of results of a session. When one is dropped, forms that are as old as its form are refused, so that none acts twice."""
SESSIONS_MAX = 100
"""Maximum number of sessions in memory. 100: with logins each session has a snapshot of the cluster. Beyond the limit the session that was
idle for longest is dropped."""
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class Session:
    """A browser. `desk` is None before the login; `results` has the outcome of each form that was sent, None while it is executed."""

    def __init__(self) -> None:
        self.id = secrets.token_urlsafe(32)
        self.desk: Desk | None = None
        self.user = ""
        self._key = secrets.token_bytes(32)
        self.results: OrderedDict[str, Done | None] = OrderedDict()
        self._dropped_s = 0
        """When the newest form was made whose result was dropped."""

    def new_token(self) -> str:
        text = f"{int(time.time()):x}-{secrets.token_urlsafe(12)}"
        return f"{text}.{self._sign(text)}"

    def take(self, token: str) -> bool:
        """Claims a token. Returns False if its form was sent before. Raises `PageError` for a token that is forged or too old."""
        text, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._sign(text).encode(), signature.encode()):
            raise PageError("This form was not made by this console for this browser. Open the page again and repeat it.", 403)
        if time.time() - _made_s(token) > TOKEN_AGE_MAX_S:
            raise PageError("This form is older than an hour. Open the page again and repeat it.", 403)
        if token in self.results:
            return False
        if _made_s(token) <= self._dropped_s:
            raise PageError(f"{RESULTS_MAX:,} forms were sent since this one was made. Open the page again and repeat it.", 403)
        self.results[token] = None
        while len(self.results) > RESULTS_MAX:
            self._dropped_s = max(self._dropped_s, _made_s(self.results.popitem(last=False)[0]))
        return True

    def _sign(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(), "sha256").hex()


def _made_s(token: str) -> int:
    return int(token.partition("-")[0], 16)


class Sessions:
    """The sessions by cookie; the session that was idle longest is first."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def find(self, cookie: str) -> Session | None:
        session = self._sessions.get(cookie)
        if session is not None:
            self._sessions.move_to_end(cookie)
        return session

    def add(self, session: Session) -> None:
        self._sessions[session.id] = session
        while len(self._sessions) > SESSIONS_MAX:
            self._close(self._sessions.popitem(last=False)[1])

    def remove(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._close(session)

    def close(self) -> None:
        while self._sessions:
            self._close(self._sessions.popitem()[1])

    def _close(self, session: Session) -> None:
        if session.desk is not None and all(other.desk is not session.desk for other in self._sessions.values()):
            session.desk.release()


class Guard:
    """ASGI middleware: checks `Host`, and adds `HEADERS` to every answer."""

    def __init__(self, app: App, names: frozenset[str]) -> None:
        """`names` are the accepted names in `Host`. An empty set accepts all names, for a console that is not on the loopback address."""
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
                if b"cache-control" not in given:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
        if self._names and name.lower() not in self._names:
            from starlette.responses import PlainTextResponse

            sentence = f"This console serves {', '.join(sorted(self._names))}. Ask for it by one of these names.\n"
            await PlainTextResponse(sentence, 421)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)
