"""Bearer tokens of a client (RFC 7628, KIP-255, KIP-342): syntax, expiry, and unsecured tokens for tests.

A token is opaque to the client. Only its expiry is read, if it is a JSON Web Token. No error and no `repr` here shows a token.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from ottla.base.immutable import immutable

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]*")
_RESERVED = "auth"


@immutable
class BearerToken:
    """A token, its time of expiry (seconds since 1970, None if it is not known), and the SASL extensions that are sent with it."""

    text: str
    ends_s: float | None = None
    extensions: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"BearerToken(ends_s={self.ends_s})"

    def first_message(self) -> bytes:
        """Returns the client's first message (RFC 7628, 3.1), without an authorization identity."""
        pairs = "".join(f"{name}={value}\x01" for name, value in (("auth", f"Bearer {self.text}"), *self.extensions))
        return f"n,,\x01{pairs}\x01".encode()


def bearer_token(text: str, ends_s: float | None = None, extensions: Mapping[str, str] | None = None) -> BearerToken:
    """Checks a token and its extensions, and returns them. Without `ends_s` the time of expiry is read from the token. Raises ValueError
    for a token with an invalid character, and for an invalid extension.
    """
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("the token is empty, or has characters that no bearer token has")
    return BearerToken(text, _expiry(text) if ends_s is None else ends_s, checked_extensions(extensions or {}))


def checked_extensions(extensions: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns SASL extensions (KIP-342) as pairs. Raises ValueError if a name or a value cannot be sent."""
    for name, value in extensions.items():
        if _EXTENSION_NAME.fullmatch(name) is None or name.lower() == _RESERVED:
            raise ValueError(f"the SASL extension {name!r}: a name has only letters, and is not 'auth'")
        if _EXTENSION_VALUE.fullmatch(value) is None:
            raise ValueError(f"the SASL extension {name} has characters that cannot be sent")
    return tuple(extensions.items())


def unsecured_token(claims: Mapping[str, Any], lifetime_s: float, now_s: float, extensions: Mapping[str, str] | None = None) -> BearerToken:
    """Makes a token without a signature (RFC 7515, appendix A.5), for tests only. `iat` and `exp` in `claims` are replaced."""
    ends_s = now_s + lifetime_s
    text = f"{_part({'alg': 'none'})}.{_part({**claims, 'iat': now_s, 'exp': ends_s})}."
    return BearerToken(text, ends_s, checked_extensions(extensions or {}))


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _expiry(text: str) -> float | None:
    """Returns the claim `exp` of a JSON Web Token; None if the token has another form or no numeric `exp`."""
    from ottla.security.web_tokens import TokenError, read_token

    try:
        found = read_token(text).claims.get("exp")
    except TokenError:
        return None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
