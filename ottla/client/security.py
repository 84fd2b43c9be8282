"""TLS and SASL of a client, from the properties that Kafka's and librdkafka's clients take.

`security.protocol` chooses: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. TLS takes PEM files (`ssl.truststore.location` or `ssl.ca.location`,
`ssl.keystore.location` or `ssl.certificate.location` with `ssl.key.location`); Java's own key stores cannot be read. SASL speaks PLAIN and
SCRAM-SHA-256 / -512; name and password come from `sasl.jaas.config` or `sasl.username` and `sasl.password`. A password never appears in a
message.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
from collections.abc import Mapping

from ottla.client.core.sasl import MECHANISMS, SaslExchange, exchange

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_JAAS = re.compile(r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)""")


class Security:
    """TLS and SASL of connections. ValueError in one line when the properties make no sense."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol={self.protocol} is none of {', '.join(PROTOCOLS)}")
        self.uses_tls = self.protocol.endswith("SSL")
        self.uses_sasl = self.protocol.startswith("SASL")
        self.context = _tls_context(properties) if self.uses_tls else None
        if self.uses_sasl:
            self.mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "PLAIN").upper()
            if self.mechanism not in MECHANISMS:
                raise ValueError(f"sasl.mechanism={self.mechanism} is not offered; there are {', '.join(MECHANISMS)}")
            self._username, self._password = credentials(properties)

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket under TLS, if that is wanted."""
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname=host)

    def new_exchange(self) -> SaslExchange | None:
        """A SASL exchange for one connection, if SASL is wanted."""
        if not self.uses_sasl:
            return None
        nonce = base64.b64encode(os.urandom(18)).decode()
        return exchange(self.mechanism, self._username, self._password, nonce)


def credentials(properties: Mapping[str, str]) -> tuple[str, str]:
    """User name and password, from a JAAS line or from properties of their own."""
    found = {name: value.strip("\"'") for name, value in _JAAS.findall(properties.get("sasl.jaas.config", ""))}
    username = properties.get("sasl.username", found.get("username"))
    password = properties.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise ValueError("SASL needs a name and a password: sasl.jaas.config, or sasl.username and sasl.password")
    return username, password


def _tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        trust = properties.get("ssl.truststore.location") or properties.get("ssl.ca.location")
        if trust:
            context.load_verify_locations(cafile=trust)
        own = properties.get("ssl.keystore.location") or properties.get("ssl.certificate.location")
        if own:
            password = properties.get("ssl.key.password") or properties.get("ssl.keystore.password")
            context.load_cert_chain(own, properties.get("ssl.key.location"), password)
    except ssl.SSLError as error:
        raise ValueError(f"the TLS files are not PEM ({error.reason or error}); set ssl.keystore.type=PEM and convert them") from None
    except OSError as error:
        raise ValueError(f"cannot read a TLS file: {error.strerror}: {trust or own}") from None
    is_checked = properties.get("enable.ssl.certificate.verification", "true").lower() != "false"
    if not is_checked or not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    if not is_checked:
        context.verify_mode = ssl.CERT_NONE
    return context
