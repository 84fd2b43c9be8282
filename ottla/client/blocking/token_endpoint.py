"""Fetches bearer tokens from an issuer's endpoint by client credentials (RFC 6749, 4.4; KIP-768), or from a file. The calls block.

Requests use no proxy and follow no redirect. After a temporary failure (no valid HTTP answer, status 408, 429, 500, 502, 503 or 504) the
request is repeated for `retry_s` seconds. Error messages contain the address without user and query, and the endpoint's error code (RFC
6749). They never contain the secret or other parts of the answer.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from ottla.base.errors import ErrorCode
from ottla.base.immutable import immutable
from ottla.client.core.bearer_token import BearerToken, bearer_token
from ottla.client.errors import ClientError, ConnectError, refused

ANSWER_BYTES_MAX = 1 << 20
TIMEOUT_S = 10.0
BACKOFF_S = 0.1
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_CODE = re.compile(r"[a-z_]{1,40}")


@immutable(kw_only=True)
class OauthEndpoint:
    """The token endpoint of a client, its credentials there, and timeouts."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    is_urlencoded: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749, 2.3.1 requires (`sasl.oauthbearer.header.urlencode`)."""
    extensions: Mapping[str, str]
    context: Callable[[], ssl.SSLContext]
    connect_timeout_s: float = TIMEOUT_S
    read_timeout_s: float = TIMEOUT_S
    backoff_s: float = BACKOFF_S
    retry_s: float = TIMEOUT_S
    """For how long a request is repeated after temporary failures, in seconds."""

    def __repr__(self) -> str:
        return f"OauthEndpoint({shown(self.url)})"


def shown(url: str) -> str:
    """Returns an address for error messages: without user, password and query, because each may be secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"


def file_token(path: str, extensions: Mapping[str, str]) -> BearerToken:
    """Reads the token in a file. Raises ConnectError if there is no valid token."""
    try:
        with open(path, encoding="ascii") as file:
            return bearer_token(file.read(ANSWER_BYTES_MAX).strip(), extensions=extensions)
    except OSError as error:
        raise ConnectError(f"cannot read the token in {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConnectError(f"there is no token in {path}") from None
    except ValueError as error:
        raise ConnectError(f"there is no token in {path}: {error}") from None


def fetch_token(endpoint: OauthEndpoint, sleep: Callable[[float], object] = time.sleep) -> BearerToken:
    """Requests a token. Raises AuthenticationError if the endpoint answers with an error status, and ConnectError if there is no answer or
    no valid token in it.
    """
    ends = time.monotonic() + endpoint.retry_s
    backoff_s = endpoint.backoff_s
    while True:
        try:
            status, body = _post(endpoint)
        except (OSError, HTTPException, UnicodeError) as error:
            failure: ClientError = ConnectError(f"cannot reach {shown(endpoint.url)} for a token: {_reason(error)}")
        else:
            if status == 200:
                return _token(endpoint, body)
            failure = refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"no token from {shown(endpoint.url)}: {_refusal(status, body)}")
            if status not in _PASSING:
                raise failure
        if time.monotonic() + backoff_s > ends:
            raise failure
        sleep(backoff_s)
        backoff_s *= 2


def _post(endpoint: OauthEndpoint) -> tuple[int, bytes]:
    parts = urlsplit(endpoint.url)
    assert parts.hostname, "the address was checked when the client was made"
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=endpoint.connect_timeout_s, context=endpoint.context()
        )
    else:
        connection = HTTPConnection(parts.hostname, parts.port or 80, timeout=endpoint.connect_timeout_s)
    try:
        connection.connect()
        connection.sock.settimeout(endpoint.read_timeout_s)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, _form(endpoint), _headers(endpoint))
        response = connection.getresponse()
        return response.status, response.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()


def _form(endpoint: OauthEndpoint) -> str:
    fields = {"grant_type": "client_credentials"}
    if endpoint.scope:
        fields["scope"] = endpoint.scope
    return urlencode(fields)


def _headers(endpoint: OauthEndpoint) -> dict[str, str]:
    pair = (endpoint.client_id, endpoint.client_secret)
    credentials = ":".join(quote_plus(one) if endpoint.is_urlencoded else one for one in pair).encode()
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(credentials).decode()}",
        "Cache-Control": "no-cache",
        "Connection": "close",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _token(endpoint: OauthEndpoint, body: bytes) -> BearerToken:
    found = _object(body)
    text, lifetime_s = found.get("access_token"), found.get("expires_in")
    if not isinstance(text, str):
        raise ConnectError(f"{shown(endpoint.url)} answers without an access_token; is it a token endpoint?")
    try:
        token = bearer_token(text.strip(), extensions=endpoint.extensions)
    except ValueError as error:
        raise ConnectError(f"{shown(endpoint.url)} gives no token that can be used: {error}") from None
    if token.ends_s is None and isinstance(lifetime_s, int | float) and lifetime_s > 0:
        return BearerToken(token.text, time.time() + lifetime_s, token.extensions)
    return token


def _object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(status: int, body: bytes) -> str:
    code = _object(body).get("error")
    return f"HTTP status {status}{f' ({code})' if isinstance(code, str) and _CODE.fullmatch(code) else ''}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "no address" if isinstance(error, UnicodeError) else f"no HTTP ({type(error).__name__})"


def file_path(url: str) -> str | None:
    """Returns the path of a `file:` address, None for other addresses and for a `file:` address with a host."""
    if not url.lower().startswith("file:"):
        return None
    parts = urlsplit(url)
    return unquote(parts.path) if not parts.netloc else None
