"""JSON Web Tokens (RFC 7519): parses the compact form and checks the claims. `signing_keys.py` checks signatures.

Parsing is strict: three parts, base64url without padding, JSON objects without NaN. A header with `crit` names an unsupported extension and
is refused (RFC 7515, 4.1.11). A refusal is a `TokenError` whose text is written to the audit log; clients learn only the status of RFC 7628
and the required scopes.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any, NamedTuple

from ottla.base.counted import counted
from ottla.base.settings.oauthbearer import TokenOptions

TOKEN_BYTES_MAX = 32 * 1024
"""Maximum size of a token. A token with all groups of a large company has about 16 KiB."""

SECONDS_MAX = 1 << 40
"""Upper bound of times in a token, so that milliseconds fit into 64 bits."""

INVALID, INSUFFICIENT_SCOPE = "invalid_token", "insufficient_scope"
_PART = re.compile(r"[A-Za-z0-9_-]*")


class TokenError(ValueError):
    """The refusal of a token, with its reason; `status` is sent to the client (RFC 7628, 3.2.2)."""

    def __init__(self, reason: str, status: str = INVALID) -> None:
        super().__init__(reason)
        self.status = status


class WebToken(NamedTuple):
    """A parsed token, before its claims and signature are checked."""

    text: str
    header: dict[str, Any]
    claims: dict[str, Any]
    signature: bytes

    @property
    def algorithm(self) -> str:
        found = self.header.get("alg")
        return found if isinstance(found, str) else ""

    @property
    def key_id(self) -> str | None:
        found = self.header.get("kid")
        return found if isinstance(found, str) else None


class Identity(NamedTuple):
    """The user of a token, and the time when the session ends: the token's expiry, or the clock skew later if the token has expired."""

    name: str
    ends_ms: int


def read_token(text: str) -> WebToken:
    """Parses a token. Raises `TokenError`."""
    if len(text) > TOKEN_BYTES_MAX:
        raise TokenError(f"the token has {len(text)} bytes, more than {TOKEN_BYTES_MAX}")
    parts = text.split(".")
    if len(parts) != 3:
        raise TokenError(f"the token has {counted(len(parts), 'part')}, not 3")
    header, claims = _object(_decoded(parts[0]), "header"), _object(_decoded(parts[1]), "claims")
    if "crit" in header:
        raise TokenError("the token's header names critical extensions")
    return WebToken(text, header, claims, _decoded(parts[2]))


def check_unsecured(token: WebToken) -> None:
    """Raises `TokenError` if the token does not declare that it is unsigned, or if it has a signature (RFC 7515, appendix A.5)."""
    if token.algorithm != "none" or token.signature:
        raise TokenError(f"this listener accepts only tokens without a signature, not {token.algorithm or 'one without algorithm'}")


def check_claims(token: WebToken, options: TokenOptions, now_ms: int) -> Identity:
    """Returns the user of the token. Raises `TokenError` for a missing or invalid claim; its text contains no part of the token."""
    claims = token.claims
    ends_ms, begun_ms = _time_ms(claims, "exp"), _time_ms(claims, "iat")
    if ends_ms is None or begun_ms is None:
        raise TokenError("the token has no time of expiry (exp) or of issue (iat)")
    if now_ms >= ends_ms + options.skew_ms:
        raise TokenError("the token has expired")
    if max(begun_ms, _time_ms(claims, "nbf") or 0) > now_ms + options.skew_ms:
        raise TokenError("the token is not valid yet")
    if options.issuer is not None and claims.get("iss") != options.issuer:
        raise TokenError("the token is by another issuer")
    if options.audiences and not set(options.audiences) & set(_texts(claims.get("aud"))):
        raise TokenError("the token is for another audience")
    name = claims.get(options.name_claim)
    if not isinstance(name, str) or not name.strip():
        raise TokenError(f"the token names no user ({options.name_claim})")
    if missing := set(options.scopes) - set(_scopes(claims.get(options.scope_claim))):
        raise TokenError(f"the token lacks the scope {' '.join(sorted(missing))}", INSUFFICIENT_SCOPE)
    return Identity(name, ends_ms if ends_ms > now_ms else ends_ms + options.skew_ms)


def _decoded(part: str) -> bytes:
    if _PART.fullmatch(part) is None or len(part) % 4 == 1:
        raise TokenError("a part of the token is not base64url")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (ValueError, binascii.Error):
        raise TokenError("a part of the token is not base64url") from None


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise TokenError(f"the token's {what} cannot be read") from None
    if not isinstance(found, dict):
        raise TokenError(f"the token's {what} are no JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _time_ms(claims: dict[str, Any], claim: str) -> int | None:
    """Returns a time claim (seconds, possibly with a fraction) in milliseconds; None if it is absent."""
    found = claims.get(claim)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= SECONDS_MAX:
        raise TokenError(f"the token's {claim} is no time")
    return int(found * 1000)


def _texts(found: Any) -> list[str]:
    """Returns a claim as a list of strings, if it is one string or a list. Elements of other types are ignored."""
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, str)]


def _scopes(found: Any) -> list[str]:
    """Returns scopes, given as a list or as one text separated by blanks (RFC 6749, 3.3)."""
    return found.split() if isinstance(found, str) else _texts(found)
