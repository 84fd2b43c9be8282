"""Gets and renews the bearer tokens of a client, from the source that Kafka's properties (KIP-255, KIP-768, KIP-1139) or librdkafka's name.

The first of these sources is used: a function of the program; `sasl.oauthbearer.token.endpoint.url`, the address of an endpoint or file;
or, for tests, an unsigned token from the JAAS line's `unsecuredLogin...` options or from `sasl.oauthbearer.config`.

All connections of a client share one token. The first login in the last fifth of the token's lifetime (`sasl.login.refresh.window.factor`)
fetches a new token. This is early enough for the renewal of sessions (`core/login_renewal.py`). If fetching fails, the old token is used
until it expires. After a broker has refused a token, the next login asks the source again.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.client.blocking.token_endpoint import OauthEndpoint, fetch_token, file_path, file_token
from ottla.client.core.bearer_token import BearerToken, bearer_token, checked_extensions, unsecured_token
from ottla.client.errors import ClientError, refused

TokenCallback = Callable[[], str | tuple[str, float]]
"""Returns a bearer token, alone or with its time of expiry in seconds since 1970. May block."""

WINDOW_FACTOR = 0.8
RETRY_S = 1.0
"""Pause between two attempts to replace a token that is still valid, in seconds."""
LIFETIME_S = 3600.0
"""Lifetime of an unsigned token, and of a token without an expiry time, in seconds."""

_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT = (
    ("client id", "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id", "clientId"),
    ("client secret", "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret", "clientSecret"),
)
_PAIR = re.compile(r"(\S+?)=(\S*)")

Properties = Mapping[str, str]
Source = Callable[[], BearerToken]


class TokenKeeper:
    """The token of a client. Several threads may call `token`; one of them fetches, the others wait."""

    def __init__(self, source: Source, *, window_factor: float = WINDOW_FACTOR, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._window_factor = window_factor
        self._now = now
        self._lock = threading.Lock()
        self._token: BearerToken | None = None
        self.due_s = 0.0
        """When `token` begins to fetch a new token, in seconds since 1970."""
        self.ends_s = 0.0
        """When the current token expires, in seconds since 1970."""
        self.failure: ClientError | None = None
        """The error of the last attempt to replace the current token, None if it succeeded."""

    @property
    def is_due(self) -> bool:
        """Whether `token` would fetch a new token, which may block."""
        return self._token is None or self._now() >= self.due_s

    def token(self) -> BearerToken:
        """Returns a valid token, and fetches a new one if it is due. Raises ClientError if there is none."""
        with self._lock:
            token = self._token
            return self._renewed(token) if token is None or self._now() >= self.due_s else token

    def discard(self, token: object) -> None:
        """Forgets a token that a broker has refused, if it is the current one."""
        if self._token is token:
            self._token = None

    def _renewed(self, before: BearerToken | None) -> BearerToken:
        """Fetches a new token. If that fails, returns `before` while `before` is valid. `discard` does not wait for the source: if it has
        dropped `before` meanwhile, the error is raised.
        """
        try:
            token = self._source()
        except ClientError as error:
            if before is None or self._token is not before or self._now() >= self.ends_s:
                raise
            self.failure = error
            self.due_s = self._now() + RETRY_S
            return before
        now_s = self._now()
        self.ends_s = now_s + LIFETIME_S if token.ends_s is None else token.ends_s
        self.due_s = now_s + (self.ends_s - now_s) * self._window_factor
        self.failure = None
        self._token = token
        return token


def token_keeper(properties: Properties, jaas: Mapping[str, str], callback: TokenCallback | None = None) -> TokenKeeper:
    """Makes the `TokenKeeper` of a client. `jaas`: the options of `sasl.jaas.config`. Raises ValueError for invalid properties."""
    _refuse_other_classes(properties)
    factor = _number(properties, "sasl.login.refresh.window.factor", WINDOW_FACTOR)
    if not 0.5 <= factor <= 1:
        raise ValueError(f"sasl.login.refresh.window.factor={factor:g} is not between 0.5 and 1")
    return TokenKeeper(_source(properties, jaas, callback), window_factor=factor)


def _source(properties: Properties, jaas: Mapping[str, str], callback: TokenCallback | None) -> Source:
    extensions = _extensions(properties, jaas)
    if callback is not None:
        return lambda: _of_callback(callback, extensions)
    url = properties.get(_URL, "").strip()
    if not url:
        return _unsecured(properties, jaas)
    path = file_path(url)
    if path is not None:
        return lambda: file_token(path, extensions)
    endpoint = _endpoint(url, properties, jaas, extensions)
    return lambda: fetch_token(endpoint)


def _of_callback(callback: TokenCallback, extensions: Mapping[str, str]) -> BearerToken:
    found = callback()
    text, ends_s = (found, None) if isinstance(found, str) else found
    try:
        return bearer_token(text, ends_s, extensions)
    except ValueError as error:
        raise refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the program's function gives no token: {error}") from None


def _refuse_other_classes(properties: Properties) -> None:
    for name, served in (("sasl.login.callback.handler.class", _HANDLERS), ("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS)):
        found = properties.get(name, "").strip()
        if found and found.rpartition(".")[2] not in served:
            raise ValueError(f"{name}={found} is not served; there are {', '.join(served)}")
    method = properties.get("sasl.oauthbearer.method", "default").strip().lower()
    grant = properties.get("sasl.oauthbearer.grant.type", "client_credentials").strip().lower()
    if method not in ("default", "oidc") or grant != "client_credentials":
        raise ValueError("sasl.oauthbearer.method and sasl.oauthbearer.grant.type: only oidc with client_credentials is served")


# An endpoint


def _endpoint(url: str, properties: Properties, jaas: Mapping[str, str], extensions: Mapping[str, str]) -> OauthEndpoint:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        is_address = False
    if not is_address:
        raise ValueError(f"{_URL} is neither https://HOST/PATH, http://HOST/PATH nor file:///PATH")
    client_id, secret = (_credential(properties, jaas, *names) for names in _CLIENT)
    return OauthEndpoint(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=properties.get("sasl.oauthbearer.scope") or jaas.get("scope"),
        is_urlencoded=properties.get("sasl.oauthbearer.header.urlencode", "false").strip().lower() == "true",
        extensions=extensions,
        context=_trust(properties, jaas),
        connect_timeout_s=_number(properties, "sasl.login.connect.timeout.ms", 10_000) / 1000,
        read_timeout_s=_number(properties, "sasl.login.read.timeout.ms", 10_000) / 1000,
        backoff_s=_number(properties, "sasl.login.retry.backoff.ms", 100) / 1000,
        retry_s=_number(properties, "sasl.login.retry.backoff.max.ms", 10_000) / 1000,
    )


def _credential(properties: Properties, jaas: Mapping[str, str], what: str, kafkas: str, librdkafkas: str, option: str) -> str:
    found = properties.get(kafkas) or properties.get(librdkafkas) or jaas.get(option)
    if not found:
        raise ValueError(f"{_URL} needs a {what}: {kafkas}, or {option} in sasl.jaas.config")
    return found


def _trust(properties: Properties, jaas: Mapping[str, str]) -> Callable[[], ssl.SSLContext]:
    """Returns the source of the TLS context for the endpoint. It uses the JAAS line's `ssl.` options, and librdkafka's `https.ca.location`
    and `https.ca.pem`.
    """
    from ottla.client.tls import tls_context

    given = {name: value for name, value in jaas.items() if name.startswith("ssl.")}
    for name in ("ca.location", "ca.pem"):
        if properties.get(f"https.{name}"):
            given[f"ssl.{name}"] = properties[f"https.{name}"]
    made = tls_context(given) if properties.get(_URL, "").strip().lower().startswith("https:") else None

    def context() -> ssl.SSLContext:
        assert made is not None, "TLS is for https"
        return made

    return context


def _number(properties: Properties, name: str, default: float) -> float:
    text = properties.get(name, "").strip()
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1
    if not 0 <= found < 1e9:
        raise ValueError(f"{name}={text} is no number between 0 and 1,000,000,000")
    return found


def _extensions(properties: Properties, jaas: Mapping[str, str]) -> dict[str, str]:
    found = {name.removeprefix("extension_"): value for name, value in jaas.items() if name.startswith("extension_")}
    for pair in filter(None, (one.strip() for one in properties.get("sasl.oauthbearer.extensions", "").split(","))):
        name, _, value = pair.partition("=")
        found[name.strip()] = value.strip()
    checked_extensions(found)
    return found


# Tokens without a signature


def _unsecured(properties: Properties, jaas: Mapping[str, str]) -> Source:
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").strip().lower() == "true":
        jaas = _of_librdkafka(properties.get("sasl.oauthbearer.config", ""))
    claims: dict[str, Any] = {}
    for option, value in jaas.items():
        if option.startswith("unsecuredLoginStringClaim_"):
            claims[option.removeprefix("unsecuredLoginStringClaim_")] = value
        elif option.startswith("unsecuredLoginNumberClaim_"):
            claims[option.removeprefix("unsecuredLoginNumberClaim_")] = _number(jaas, option, 0)
        elif option.startswith("unsecuredLoginListClaim_"):
            claims[option.removeprefix("unsecuredLoginListClaim_")] = value[1:].split(value[0]) if value else []
    name = jaas.get("unsecuredLoginPrincipalClaimName") or "sub"
    if not isinstance(claims.get(name), str):
        raise ValueError(f"OAUTHBEARER needs {_URL}, or for tests unsecuredLoginStringClaim_{name} in sasl.jaas.config")
    lifetime_s = _number(jaas, "unsecuredLoginLifetimeSeconds", LIFETIME_S)
    own = "unsecuredLoginExtension_"
    extensions = {option.removeprefix(own): value for option, value in jaas.items() if option.startswith(own)}
    checked_extensions(extensions)
    return lambda: unsecured_token(claims, lifetime_s, time.time(), extensions)


def _of_librdkafka(text: str) -> dict[str, str]:
    """Returns the JAAS options that are equivalent to a `sasl.oauthbearer.config`."""
    given = dict(_PAIR.findall(text))
    principal, scope = given.get("principalClaimName", "sub"), given.get("scopeClaimName", "scope")
    found = {"unsecuredLoginPrincipalClaimName": principal, "unsecuredLoginLifetimeSeconds": given.get("lifeSeconds", "")}
    if "principal" in given:
        found[f"unsecuredLoginStringClaim_{principal}"] = given["principal"]
    if given.get("scope"):
        found[f"unsecuredLoginListClaim_{scope}"] = f",{given['scope']}"
    for name, value in given.items():
        if name.startswith("extension_"):
            found[f"unsecuredLoginExtension_{name.removeprefix('extension_')}"] = value
    return found
