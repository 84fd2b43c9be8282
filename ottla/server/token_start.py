"""Refuses to start a broker with a listener for bearer tokens whose signatures it could not check."""

from __future__ import annotations

from importlib.util import find_spec

from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.settings.oauthbearer import MECHANISM

PACKAGES = {"jwt": "PyJWT", "cryptography": "cryptography"}


def read_document(url: str, authorities: str | None) -> bytes:
    """`ports.ReadDocument`."""
    from ottla.adapters.documents import read_document as read  # on use: ssl and http.client are slow to import

    return read(url, authorities)


def check_token_keys(config: BrokerConfig) -> None:
    """Raises `StorageError` where the packages are missing or a file of keys cannot be used. An address is read later: its host may be
    down for a while."""
    for endpoint in config.endpoints:
        options = config.of_listeners.tokens(endpoint.name) if MECHANISM in config.of_listeners.mechanisms(endpoint) else None
        if options is None or options.jwks_url is None:
            continue
        for package, name in PACKAGES.items():
            if find_spec(package) is None:
                raise StorageError(f"listener {endpoint.name}: {MECHANISM} needs the package {name}; install ottla[security]")
        if not options.jwks_url.startswith("file:"):
            continue
        from ottla.security.signing_keys import read_key_set

        try:
            read_key_set(read_document(options.jwks_url, None))
        except (OSError, ValueError) as error:
            raise StorageError(f"listener {endpoint.name}: sasl.oauthbearer.jwks.endpoint.url={options.jwks_url}: {error}") from None
