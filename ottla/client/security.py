"""Configures TLS and SASL of a client from the properties of Kafka's and librdkafka's clients.

`security.protocol` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. `tls.py` reads the properties of TLS. The SASL mechanisms are PLAIN and
SCRAM-SHA-256 / -512, with name and password from `sasl.jaas.config` or from `sasl.username` and `sasl.password`, and OAUTHBEARER with the
tokens of `token_source.py`. Error messages never contain a password or a token.
"""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.ports import NO_HOST_NAME
from ottla.client.core.sasl import MECHANISMS, OAUTHBEARER, BearerExchange, SaslExchange, exchange
from ottla.client.errors import ConnectError

if TYPE_CHECKING:
    import ssl

    from ottla.client.addresses import Address
    from ottla.client.token_source import TokenCallback, TokenKeeper

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NOT_SERVED = ("sasl.client.callback.handler.class", "sasl.login.class")
"""Properties with Java classes that provide credentials. Such classes cannot run here."""
_JAVA_PACKAGE = "org.apache.kafka.common.security."


class Security:
    """TLS and SASL of connections. Raises ValueError with a one-line message for invalid properties.

    `token` returns bearer tokens for OAUTHBEARER, instead of the source in the properties.
    """

    def __init__(self, properties: Mapping[str, str], token: TokenCallback | None = None) -> None:
        self.protocol = protocol_of(properties)
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol={self.protocol} is none of {', '.join(PROTOCOLS)}")
        self.uses_tls = self.protocol.endswith("SSL")
        self.uses_sasl = self.protocol.startswith("SASL")
        self.context: ssl.SSLContext | None = None
        if self.uses_tls:
            from ottla.client.tls import tls_context

            self.context = tls_context(properties)
        self._keeper: TokenKeeper | None = None
        if self.uses_sasl:
            self._set_login(properties, token)

    def _set_login(self, properties: Mapping[str, str], token: TokenCallback | None) -> None:
        self.mechanism = mechanism_of(properties)
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"sasl.mechanism={self.mechanism} is not offered; there are {', '.join(MECHANISMS)}")
        if self.mechanism == OAUTHBEARER:
            self._keeper = tokens_of(properties, token)
            return
        if token is not None:
            raise ValueError(f"a function for bearer tokens is for sasl.mechanism=OAUTHBEARER, not {self.mechanism}")
        self._username, self._password = credentials(properties)
        self._is_by_token = is_by_token(properties)

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Starts TLS on a socket and returns the TLS socket. Without TLS returns `plain`."""
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname=host)

    @property
    def may_block(self) -> bool:
        """Whether `new_exchange` has to fetch a token first."""
        return self._keeper is not None and self._keeper.is_due

    def new_exchange(self) -> SaslExchange | None:
        """Returns a SASL exchange for one connection, None without SASL. Raises ClientError if no token can be fetched."""
        if not self.uses_sasl:
            return None
        if self._keeper is not None:
            keeper, found = self._keeper, self._keeper.token()
            return BearerExchange(found, lambda: keeper.discard(found))
        nonce = base64.b64encode(os.urandom(18)).decode()
        return exchange(self.mechanism, self._username, self._password, nonce, is_by_token=self._is_by_token)


def security_of(properties: Mapping[str, str] | None, token: TokenCallback | None = None) -> Security | None:
    """Returns the TLS and SASL of the properties, None for PLAINTEXT. Raises ValueError for invalid properties."""
    if properties and protocol_of(properties) != "PLAINTEXT":
        return Security(properties, token)
    if token is not None:
        raise ValueError("a function for bearer tokens needs security.protocol=SASL_SSL (or SASL_PLAINTEXT) and sasl.mechanism=OAUTHBEARER")
    return None


def mechanism_of(properties: Mapping[str, str]) -> str:
    return (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "PLAIN").strip().upper()


def tokens_of(properties: Mapping[str, str], token: TokenCallback | None = None) -> TokenKeeper:
    """Returns the source of bearer tokens. Raises ValueError for invalid properties."""
    from ottla.base.settings.jaas import OAUTHBEARER as MODULE
    from ottla.client.token_source import token_keeper

    _refuse_unserved(properties)
    line = properties.get("sasl.jaas.config", "").strip()
    return token_keeper(properties, _of_jaas(line, MODULE) if line else {}, token)


def _refuse_unserved(properties: Mapping[str, str]) -> None:
    for name in NOT_SERVED:
        if properties.get(name):
            raise ValueError(f"{name} is not served")


def protocol_of(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "PLAINTEXT").strip().upper()


def credentials(properties: Mapping[str, str]) -> tuple[str, str]:
    """Returns user name and password. `sasl.username` and `sasl.password` have priority over `sasl.jaas.config`. Raises ValueError."""
    _refuse_unserved(properties)
    if properties.get("sasl.login.callback.handler.class"):
        raise ValueError("sasl.login.callback.handler.class is not served")
    line = properties.get("sasl.jaas.config", "").strip()
    found = _of_jaas(line) if line else {}
    username = properties.get("sasl.username", found.get("username"))
    password = properties.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise ValueError("SASL needs a name and a password: sasl.jaas.config, or sasl.username and sasl.password")
    return username, password


def is_by_token(properties: Mapping[str, str]) -> bool:
    """Whether name and password are the id and HMAC of a delegation token (`tokenauth` in the JAAS line)."""
    line = properties.get("sasl.jaas.config", "").strip()
    return bool(line) and _of_jaas(line).get("tokenauth", "").strip().lower() == "true"


def _of_jaas(line: str, module: str = "") -> dict[str, str]:
    """Returns the options of a JAAS line. The line must be for `module`, by default for PLAIN or SCRAM; else raises ValueError."""
    from ottla.base.settings.jaas import PLAIN, SCRAM, parse_jaas

    at = line.find(_JAVA_PACKAGE)  # some distributions put Kafka's classes into another package
    try:
        parsed = parse_jaas(line[at:] if at > 0 and " " not in line[:at] else line)
    except ValueError as error:
        raise ValueError(f"sasl.jaas.config: {error}") from None
    if parsed.module not in ((module,) if module else (PLAIN, SCRAM)):
        own = parsed.module.rpartition(".")[2]
        raise ValueError(f"sasl.jaas.config: {own} {'is not for OAUTHBEARER' if module else 'has no name and password'}")
    return parsed.options


def no_tls(address: Address, error: OSError) -> ConnectError:
    return ConnectError(f"no TLS with {address}: {reason_of(error)}; check security.protocol and the certificates (ssl.*)")


def lost(address: Address, error: BaseException) -> ConnectError:
    """Returns the error for a broken connection. With TLS 1.3 a broker refuses the client's certificate only after the handshake."""
    return ConnectError(f"lost {address}: {reason_of(error)}{'; check the certificates (ssl.*)' if _is_of_tls(error) else ''}")


def reason_of(error: BaseException) -> str:
    """Returns the message of the system or of OpenSSL, in lower case except for certificate errors."""
    if isinstance(error, UnicodeError):
        return NO_HOST_NAME
    if _is_of_tls(error):
        said = getattr(error, "verify_message", "") or (getattr(error, "reason", None) or str(error)).replace("_", " ").lower()
        return str(said)
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def is_about_tls(error: OSError) -> bool:
    """Whether connecting has failed because of TLS: by a TLS error, or because a peer without TLS closed the connection."""
    return _is_of_tls(error) or isinstance(error, ConnectionResetError | ConnectionAbortedError)


def _is_of_tls(error: BaseException) -> bool:
    return type(error).__module__ == "ssl"


def wants_more(error: OSError) -> bool:
    """Whether a non-blocking call failed only because no whole TLS record has arrived, or the socket does not accept more bytes."""
    return _is_of_tls(error) and type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")
