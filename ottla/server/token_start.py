"""Refuses to start a broker that cannot verify the signatures of a listener's bearer tokens, or cannot get a token for its login to other
brokers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from ottla.base.config import BrokerConfig
from ottla.base.errors import OttlaError, StorageError
from ottla.base.ports import TokenSource
from ottla.base.settings.oauthbearer import MECHANISM
from ottla.base.settings.token_login import TokenLogin

PACKAGES = {"jwt": "PyJWT", "cryptography": "cryptography"}


def read_document(url: str, authorities: str | None) -> bytes:
    """`ports.ReadDocument`."""
    from ottla.adapters.documents import read_document as read  # on use: ssl and http.client are slow to import

    return read(url, authorities)


def check_token_keys(config: BrokerConfig) -> None:
    """Raises `StorageError` if the packages are missing or a file of keys is invalid. Keys at a URL are read later, because its host may be
    down now."""
    for endpoint in config.endpoints:
        options = config.of_listeners.tokens(endpoint.name) if MECHANISM in config.of_listeners.mechanisms(endpoint) else None
        if options is None or options.jwks_url is None:
            continue
        for package, name in PACKAGES.items():
            if find_spec(package) is None:
                raise StorageError(f"listener {endpoint.name}: {MECHANISM} needs the package {name}; install it: pip install {name}")
        if not options.jwks_url.startswith("file:"):
            continue
        from ottla.security.signing_keys import read_key_set

        try:
            read_key_set(read_document(options.jwks_url, None))
        except (OSError, ValueError) as error:
            raise StorageError(f"listener {endpoint.name}: sasl.oauthbearer.jwks.endpoint.url={options.jwks_url}: {error}") from None


def make_token_source(properties: Mapping[str, str]) -> TokenSource:
    """`ports.MakeTokenSource`."""
    from ottla.client.security import tokens_of  # on use: few brokers log in by tokens

    return tokens_of(properties)


def check_token_login(config: BrokerConfig) -> None:
    """Raises `StorageError` if brokers log in with tokens and the settings cannot give one. A file is read now; a URL is read later,
    because its host may be down now."""
    if config.is_single_broker:
        return
    endpoint = next(one for one in config.endpoints if one.name == config.inter_broker_listener)
    login = config.of_listeners.broker_login(endpoint)
    if not isinstance(login, TokenLogin):
        return
    try:
        source = make_token_source(login.properties)
        if login.is_by_file:
            source.token()
    except (ValueError, OttlaError) as error:
        raise StorageError(f"listener {endpoint.name}: {error}") from None
