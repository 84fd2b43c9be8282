"""Settings of a broker that logs in to others with a bearer token (OAUTHBEARER): the source of its tokens (KIP-255, KIP-768, KIP-1139).

They are Kafka's settings of clients, which Kafka's brokers have as well. A setting is for one listener
(`listener.name.NAME.oauthbearer.SETTING`) or for all listeners. The options of the JAAS line (`clientId`, `clientSecret`, `scope`,
`extension_...`, `ssl....`) have the same meaning. A token without a signature is made only for a listener that accepts such tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.base.settings.jaas import OAUTHBEARER as MODULE
from ottla.base.settings.jaas import parse_jaas
from ottla.base.settings.oauthbearer import MECHANISM
from ottla.base.settings.setting import (
    Between,
    Setting,
    SettingError,
    Type,
    UpdateMode,
    at_least,
    boolean,
    double,
    long,
    maybe_integer,
    maybe_password,
    maybe_string,
    settings_of,
)

_URL = "sasl.oauthbearer.token.endpoint.url"


class TokenLoginSettings:
    """Settings of the bearer tokens for brokers' logins to each other."""

    sasl_oauthbearer_token_endpoint_url = maybe_string(
        _URL, "Source of the tokens with which a broker logs in to others: https://HOST/PATH, http://HOST/PATH or file:///PATH."
    )
    sasl_oauthbearer_client_credentials_client_id = maybe_string(
        "sasl.oauthbearer.client.credentials.client.id",
        "Client id with which a broker requests tokens; not set: clientId in sasl.jaas.config.",
    )
    sasl_oauthbearer_client_credentials_client_secret = maybe_password(
        "sasl.oauthbearer.client.credentials.client.secret", "Secret of this client id; not set: clientSecret in sasl.jaas.config."
    )
    sasl_oauthbearer_scope = maybe_string("sasl.oauthbearer.scope", "Scope that a broker requests; not set: scope in sasl.jaas.config.")
    sasl_oauthbearer_header_urlencode = boolean(
        "sasl.oauthbearer.header.urlencode", False, "Whether client id and secret are URL-encoded in requests for tokens (RFC 6749, 2.3.1)."
    )
    sasl_login_callback_handler_class: Setting[str | None] = Setting(
        "sasl.login.callback.handler.class", Type.CLASS, None,
        "Only Kafka's handlers for OAUTHBEARER are accepted. They need not be set.",
    )  # fmt: skip
    sasl_oauthbearer_jwt_retriever_class: Setting[str | None] = Setting(
        "sasl.oauthbearer.jwt.retriever.class", Type.CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Kafka's DefaultJwtRetriever, ClientCredentialsJwtRetriever or FileJwtRetriever. The URL decides which one is "
        "used.",
    )  # fmt: skip
    sasl_login_connect_timeout_ms = maybe_integer(
        "sasl.login.connect.timeout.ms", "Timeout for connecting to the token endpoint; not set: 10 s.", valid=at_least(1)
    )
    sasl_login_read_timeout_ms = maybe_integer(
        "sasl.login.read.timeout.ms", "Timeout for each response of the token endpoint; not set: 10 s.", valid=at_least(1)
    )
    sasl_login_retry_backoff_ms = long(
        "sasl.login.retry.backoff.ms", 100, "Pause after a failed request for a token. It doubles each time.", valid=at_least(1)
    )
    sasl_login_retry_backoff_max_ms = long(
        "sasl.login.retry.backoff.max.ms", 10_000, "Time after which failed requests for a token are no longer repeated.", valid=at_least(0)
    )
    sasl_login_refresh_window_factor = double(
        "sasl.login.refresh.window.factor", 0.8, "The next token is fetched after this part of a token's lifetime.",
        valid=Between(0.5, 1.0), update=UpdateMode.PER_BROKER,
    )  # fmt: skip


TOKEN_LOGIN_SETTINGS = frozenset(setting.name for setting in settings_of(TokenLoginSettings))


class TokenLogin(NamedTuple):
    """A login with bearer tokens: the properties of a client that define their source."""

    mechanism: str
    properties: dict[str, str]

    @property
    def is_by_file(self) -> bool:
        return self.properties.get(_URL, "").lower().startswith("file:")

    def __repr__(self) -> str:
        return f"TokenLogin({sorted(self.properties)})"


def token_login(values: Mapping[str, Any], jaas: str | None, *, is_unsecured_allowed: bool) -> TokenLogin:
    """Returns the login. `values`: the current values of `TokenLoginSettings`. Raises `SettingError`, which shows no secret."""
    if jaas and parse_jaas(jaas).module != MODULE:
        raise SettingError(f"sasl.jaas.config: the mechanism {MECHANISM} needs the OAuthBearerLoginModule")
    if not values[_URL] and not is_unsecured_allowed:
        raise SettingError(
            f"sasl.mechanism.inter.broker.protocol={MECHANISM} needs {_URL}; tokens without a signature are for listeners with "
            "ottla.sasl.oauthbearer.unsecured.allowed"
        )
    properties = {
        setting.name: setting.text(value) for setting in settings_of(TokenLoginSettings) if (value := values[setting.name]) is not None
    }
    return TokenLogin(MECHANISM, {**properties, **({"sasl.jaas.config": jaas} if jaas else {})})
