"""The settings of each listener. Its own settings (`listener.name.NAME.SETTING`) take precedence over the broker's. The settings are
checked before the start, so that no listener opens with incomplete security. Every error is one line and shows no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ottla.base.settings.gathering import ConfigError, Given
from ottla.base.settings.listeners import Endpoint
from ottla.base.settings.network import NetworkSettings
from ottla.base.settings.oauthbearer import HANDLER, OAuthBearerSettings, TokenOptions, why_handler_unserved
from ottla.base.settings.oauthbearer import MECHANISM as OAUTHBEARER
from ottla.base.settings.security import (
    CLUSTER_PROOF,
    MECHANISMS,
    PLAIN_USER_PREFIX,
    BrokerLogin,
    SecuritySettings,
    TlsOptions,
    broker_login,
    listener_names,
    plain_users,
    split_listener_name,
)
from ottla.base.settings.setting import INT_MAX, Setting, SettingError, settings_of
from ottla.base.settings.token_login import TOKEN_LOGIN_SETTINGS, TokenLogin, TokenLoginSettings, token_login

_OWNERS = (SecuritySettings, OAuthBearerSettings, TokenLoginSettings, NetworkSettings)
SETTINGS_OF_LISTENERS: dict[str, Setting[Any]] = {setting.name: setting for owner in _OWNERS for setting in settings_of(owner)}


class ListenerValues:
    """The settings of listeners; the broker's settings are their defaults."""

    def __init__(self, given: Mapping[str, Given], dynamic: Callable[[], Sequence[Mapping[str, str]]], value: Callable[[str], Any]) -> None:
        """`dynamic` returns the values that were set while the broker runs: this broker's, then the cluster's default. `value` returns the
        broker's current value of a setting.
        """
        self._given = given
        self._dynamic = dynamic
        self._value = value

    def value(self, listener: str, name: str, mechanism: str = "") -> Any:
        """Returns the current value of a setting for one listener, or for one mechanism of it."""
        setting = SETTINGS_OF_LISTENERS[name]
        for written in listener_names(listener, name, mechanism)[:-1]:
            for values in self._dynamic():
                if written in values:
                    return setting.parse(values[written])
            if written in self._given:
                return setting.parse(self._given[written].text)
        return self._value(name)

    def limit(self, listener: str, name: str) -> int | None:
        """Returns the listener's own value of one of `LISTENER_LIMITS`, which applies in addition to the broker's value; None if the
        listener has no own value."""
        written, setting = listener_names(listener, name)[0], SETTINGS_OF_LISTENERS[name]
        for values in self._dynamic():
            if written in values:
                return int(setting.parse(values[written]))
        return int(setting.parse(self._given[written].text)) if written in self._given else None

    def connection_rates(self, endpoints: Sequence[Endpoint]) -> dict[str, int]:
        """Returns the listeners' own rates of new connections, which apply in addition to the broker's."""
        found = {endpoint.name: self.limit(endpoint.name, "max.connection.creation.rate") for endpoint in endpoints}
        return {name: rate for name, rate in found.items() if rate is not None}

    def has_connection_rates(self, endpoints: Sequence[Endpoint]) -> bool:
        """Whether the broker or a listener limits the rate of new connections."""
        return self._value("max.connection.creation.rate") != INT_MAX or bool(self.connection_rates(endpoints))

    def mechanisms(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Returns the SASL mechanisms of a listener. The result is empty if the listener's clients do not authenticate by SASL."""
        return tuple(self.value(endpoint.name, "sasl.enabled.mechanisms")) if endpoint.is_authenticated_by_sasl else ()

    def plain_users(self, listener: str) -> dict[str, str]:
        """Returns the PLAIN users of a listener with their passwords. Users in `PLAIN_USER_PREFIX` settings belong to every listener and
        take precedence. Raises `SettingError`."""
        users = plain_users(self.value(listener, "sasl.jaas.config", "PLAIN"), self.value(listener, "ottla.sasl.plain.users"))
        for name, entry in self._given.items():
            if name.startswith(PLAIN_USER_PREFIX):
                users[name.removeprefix(PLAIN_USER_PREFIX)] = entry.text
        return users

    def tls(self, listener: str) -> TlsOptions:
        def value(name: str) -> Any:
            return self.value(listener, name)

        return TlsOptions(
            listener=listener,
            keystore=value("ssl.keystore.location"),
            keystore_password=value("ssl.keystore.password"),
            certificate_chain=value("ssl.keystore.certificate.chain"),
            key=value("ssl.keystore.key"),
            key_password=value("ssl.key.password") or value("ssl.keystore.password"),
            truststore=value("ssl.truststore.location"),
            truststore_password=value("ssl.truststore.password"),
            trusted=value("ssl.truststore.certificates"),
            client_auth=value("ssl.client.auth"),
            protocols=value("ssl.enabled.protocols"),
            ciphers=value("ssl.cipher.suites"),
            checks_host=bool(value("ssl.endpoint.identification.algorithm")),
        )

    def broker_login(self, endpoint: Endpoint) -> BrokerLogin | TokenLogin | None:
        """Returns this broker's login on the listener for brokers; None if the brokers only prove that they know the cluster's secret.
        Raises `SettingError`.
        """
        mechanism = self._value("sasl.mechanism.inter.broker.protocol")
        if not endpoint.is_authenticated_by_sasl or mechanism == CLUSTER_PROOF:
            return None
        jaas = self.value(endpoint.name, "sasl.jaas.config", mechanism)
        if mechanism == OAUTHBEARER:
            values = {name: self.value(endpoint.name, name, mechanism) for name in TOKEN_LOGIN_SETTINGS}
            return token_login(values, jaas, is_unsecured_allowed=self.tokens(endpoint.name).is_unsecured_allowed)
        return broker_login(mechanism, jaas, self.value(endpoint.name, "ottla.inter.broker.login", mechanism))

    def tokens(self, listener: str) -> TokenOptions:
        """Returns a listener's settings for checking bearer tokens. Raises `SettingError`."""

        def value(name: str, prefix: str = "sasl.oauthbearer.") -> Any:
            return self.value(listener, prefix + name, OAUTHBEARER)

        return TokenOptions(
            jwks_url=value("jwks.endpoint.url"),
            jwks_authorities=value("jwks.ca.location", "ottla.sasl.oauthbearer."),
            refresh_ms=value("jwks.endpoint.refresh.ms"),
            retry_backoff_ms=value("jwks.endpoint.retry.backoff.ms"),
            retry_backoff_max_ms=value("jwks.endpoint.retry.backoff.max.ms"),
            issuer=value("expected.issuer"),
            audiences=value("expected.audience"),
            is_any_issuer_allowed=value("allow.unverified.issuer"),
            is_any_audience_allowed=value("allow.unverified.audience"),
            scopes=value("required.scope", "ottla.sasl.oauthbearer."),
            skew_ms=value("clock.skew.seconds") * 1000,
            scope_claim=value("scope.claim.name"),
            name_claim=value("sub.claim.name"),
            is_unsecured_allowed=value("unsecured.allowed", "ottla.sasl.oauthbearer."),
        )

    def check(self, endpoints: Sequence[Endpoint], between_brokers: str | None) -> None:
        """Raises `ConfigError` if a listener lacks a required setting, or a setting is invalid, not served or names an unknown listener.
        `between_brokers`: the listener for other brokers; None for a single broker."""
        names = {endpoint.name.lower() for endpoint in endpoints}
        for name, entry in self._given.items():
            of_listener = split_listener_name(name)
            if of_listener is not None:
                if of_listener.listener not in names:
                    raise ConfigError(f"{name}: there is no listener {of_listener.listener.upper()} ({entry.where})")
                _check_text(SETTINGS_OF_LISTENERS[of_listener.setting], name, entry)
        for name, entry in self._given.items():
            if name.endswith(HANDLER) and entry.text.strip():
                self._check_handler(endpoints, name, entry)
        for endpoint in endpoints:
            self._check_sasl(endpoint)
            if endpoint.name == between_brokers:
                self._check_between_brokers(endpoint)

    def _check_handler(self, endpoints: Sequence[Endpoint], name: str, entry: Given) -> None:
        of_listener = split_listener_name(name)
        listener, mechanism = ("", "") if of_listener is None else (of_listener.listener, of_listener.mechanism)
        concerned = [endpoint.name for endpoint in endpoints if endpoint.name.lower() == (listener or endpoint.name.lower())]
        is_unsecured_allowed = all(self.tokens(one).is_unsecured_allowed for one in concerned)
        reason = why_handler_unserved(entry.text.strip(), mechanism, is_unsecured_allowed=is_unsecured_allowed)
        if reason:
            raise ConfigError(f"{name}: {reason} ({entry.where})")

    def _check_between_brokers(self, endpoint: Endpoint) -> None:
        options = self.tls(endpoint.name)
        if endpoint.is_tls and not options.truststore and not options.trusted:
            raise ConfigError(
                f"listener {endpoint.name}: brokers connect to each other by it and need ssl.truststore.location, the authority that "
                "signs their certificates"
            )
        try:
            login = self.broker_login(endpoint)
        except SettingError as error:
            raise ConfigError(f"listener {endpoint.name}: {error}") from None
        if login is not None and login.mechanism not in self.mechanisms(endpoint):
            raise ConfigError(
                f"listener {endpoint.name}: sasl.mechanism.inter.broker.protocol={login.mechanism} is not in sasl.enabled.mechanisms"
            )

    def _check_sasl(self, endpoint: Endpoint) -> None:
        if not endpoint.is_authenticated_by_sasl:
            return
        mechanisms = self.mechanisms(endpoint)
        for name in mechanisms or ("nothing",):
            if name not in MECHANISMS:
                served = ", ".join(MECHANISMS)
                raise ConfigError(f"listener {endpoint.name}: sasl.enabled.mechanisms names {name}; served are {served}")
        if OAUTHBEARER in mechanisms and (reason := self.tokens(endpoint.name).why_unusable()):
            raise ConfigError(f"listener {endpoint.name}: {reason}")
        if "PLAIN" not in mechanisms:
            return
        try:
            users = self.plain_users(endpoint.name)
        except SettingError as error:
            raise ConfigError(f"listener {endpoint.name}: {error}") from None
        if not users:
            raise ConfigError(
                f"listener {endpoint.name}: the mechanism PLAIN has no users; set listener.name.{endpoint.name.lower()}.plain."
                "sasl.jaas.config or ottla.sasl.plain.users"
            )


def _check_text(setting: Setting[Any], name: str, entry: Given) -> None:
    try:
        setting.parse(entry.text)
    except SettingError as error:
        raise ConfigError(f"{error} ({name}, {entry.where})") from None
