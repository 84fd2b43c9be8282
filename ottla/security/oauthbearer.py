"""The server's side of OAUTHBEARER (RFC 7628, KIP-255): checks the client's bearer token. The session ends when the token expires.

The answer to a refused token is a JSON object with the status (RFC 7628, 3.2.2). The authentication fails after the client's next message,
which should be one byte (%x01). The reason is written to the audit log only. A malformed first message, or an authorization id that is not
the token's principal, fails at once with a text. SASL extensions (KIP-342) are parsed and ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ottla.base.settings.oauthbearer import MECHANISM, TokenOptions
from ottla.security.authentication import StepResult
from ottla.security.web_tokens import INSUFFICIENT_SCOPE, TokenError, WebToken, check_claims, check_unsecured, read_token

__all__ = ["MECHANISM", "OAuthBearerServer"]

CONFIRMATION = b"\x01"
_FIRST = re.compile(r"n,(?:a=(?P<name>[^,\x00]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\r\n\t]*\x01)+)\x01")
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE)

Verify = Callable[[WebToken, Callable[[str], object]], object]
"""Checks a token's signature, now or later; calls back with the reason of a refusal, empty if the signature is right."""


class OAuthBearerServer:
    """One authentication (`authentication.Exchange`)."""

    def __init__(self, options: TokenOptions, verify: Verify | None, now_ms: Callable[[], int]) -> None:
        """`verify` is None if unsigned tokens are accepted; `now_ms` returns the wall time."""
        self._options = options
        self._verify = verify
        self._now_ms = now_ms
        self._refusal: StepResult | None = None
        """The final answer, sent when the client has confirmed the status."""

    def step(self, token: bytes, done: Callable[[StepResult], None]) -> None:
        if self._refusal is not None:
            done(self._refusal)
            return
        try:
            self._first(token, done)
        except TokenError as error:
            done(self._refused(error))

    def _first(self, message: bytes, done: Callable[[StepResult], None]) -> None:
        found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
        bearer = None if found is None else _BEARER.fullmatch(_pairs(found["pairs"]).get("auth", ""))
        if found is None or bearer is None:
            done(StepResult(error="Invalid OAUTHBEARER client first message"))
            return
        token, authorized_as = read_token(bearer[1]), found["name"]
        if self._verify is None:
            check_unsecured(token)
            done(self._judged(token, authorized_as))
            return

        def verified(reason: str) -> None:
            done(self._refused(TokenError(reason)) if reason else self._judged(token, authorized_as))

        self._verify(token, verified)

    def _judged(self, token: WebToken, authorized_as: str | None) -> StepResult:
        try:
            name, ends_ms = check_claims(token, self._options, self._now_ms())
        except TokenError as error:
            return self._refused(error)
        if authorized_as is not None and authorized_as.replace("=2C", ",").replace("=3D", "=") != name:
            text = "Authentication failed: Client requested an authorization id that is different from the token's principal name"
            return StepResult(error=text, claimed=name)
        return StepResult(principal=f"User:{name}", ends_ms=ends_ms)

    def _refused(self, error: TokenError) -> StepResult:
        answer = {"status": error.status}
        if error.status == INSUFFICIENT_SCOPE:
            answer["scope"] = " ".join(self._options.scopes)
        text = json.dumps(answer, separators=(",", ":"))
        self._refusal = StepResult(error=text, reason=str(error))
        return StepResult(token=text.encode())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split("\x01") if pair)
