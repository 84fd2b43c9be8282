"""TLS settings and SASL login for connections to other brokers, from the settings of the listener for brokers.

The login authenticates a user. After it, the cluster's secret proves that the client is a broker (`security/cluster_identity.py`).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.ports import LoginToken
from ottla.base.settings.security import BrokerLogin
from ottla.base.settings.token_login import TokenLogin
from ottla.security.credentials import Stored
from ottla.security.mechanisms import NONCE_BYTES
from ottla.security.scram import HASHES

if TYPE_CHECKING:
    from ottla.client.core.sasl import SaslExchange
    from ottla.security.broker_tokens import BrokerTokens

log = logging.getLogger("ottla.security")

Begun = Callable[["SaslExchange | None", OttlaError | None], object]


class BrokerAccess:
    """Implements `peers.Access`. Reads the settings again for each login."""

    def __init__(self, config: BrokerConfig, ports: Ports) -> None:
        self._config = config
        self._ports = ports
        self._endpoint = next(endpoint for endpoint in config.endpoints if endpoint.name == config.inter_broker_listener)
        self.tls = self._endpoint.name if self._endpoint.is_tls else ""
        self.logs_in = config.of_listeners.broker_login(self._endpoint) is not None
        self._tokens: tuple[TokenLogin, BrokerTokens] | None = None
        """The settings of the login, and the tokens that are fetched with them."""
        self._is_user_missing = False

    def prepare(self) -> None:
        """If brokers log in by tokens, fetches the first one, so that a failure is logged at the start."""
        login = self._config.of_listeners.broker_login(self._endpoint)
        if isinstance(login, TokenLogin):
            self._tokens_of(login).get(lambda _token, _error: None)

    def review_user(self, stored: Stored) -> None:
        """Logs a warning if the user that brokers use to log in to each other has no SCRAM credential. Brokers then wait for the controller
        forever. `stored` are the cluster's credentials; called when they were read or have changed.
        """
        try:
            login = self._config.of_listeners.broker_login(self._endpoint)
        except ValueError:
            return  # `begin_login` reports settings that became invalid
        if not isinstance(login, BrokerLogin) or login.mechanism not in HASHES:
            return
        is_missing = login.mechanism not in stored.get(login.user, {})
        if is_missing and not self._is_user_missing:
            create = f"ottla user add {quote(login.user)} --mechanism {login.mechanism} --zookeeper {self._config.zookeeper_connect}"
            log.warning(
                "brokers log in to each other as user %r, who has no %s credential; create it: %s --password-file FILE",
                login.user, login.mechanism, create,
            )  # fmt: skip
        self._is_user_missing = is_missing

    def begin_login(self, done: Begun) -> None:
        from ottla.client.errors import refused  # on use: a single broker connects to no other

        try:
            login = self._config.of_listeners.broker_login(self._endpoint)
            if isinstance(login, TokenLogin):
                self._begin_by_token(self._tokens_of(login), done)
            else:
                assert login is not None, "whether brokers log in does not change while they run"
                done(self._by_password(login), None)
        except ValueError as error:  # The settings have become invalid while the broker runs.
            done(None, refused(ErrorCode.SASL_AUTHENTICATION_FAILED, f"this broker cannot log in to others: {error}"))

    def share(self) -> float:
        return self._ports.random.uniform(0, 1)

    def close(self) -> None:
        if self._tokens is not None:
            self._tokens[1].close()

    def _by_password(self, login: BrokerLogin) -> SaslExchange:
        from ottla.client.core.sasl import exchange

        nonce = base64.b64encode(self._ports.random.token_bytes(NONCE_BYTES)).decode()
        return exchange(login.mechanism, login.user, login.password, nonce)

    def _tokens_of(self, login: TokenLogin) -> BrokerTokens:
        """Returns the source of tokens for these settings. Raises ValueError if they are invalid."""
        if self._tokens is None or self._tokens[0] != login:
            from ottla.security.broker_tokens import BrokerTokens

            ports = self._ports
            assert ports.make_token_source is not None, "logins by tokens, and nowhere to get them"
            tokens = BrokerTokens(ports.make_token_source(login.properties), ports.threads, ports.clock, ports.timers)
            self.close()
            self._tokens = login, tokens
        return self._tokens[1]

    @staticmethod
    def _begin_by_token(tokens: BrokerTokens, done: Begun) -> None:
        from ottla.client.core.sasl import BearerExchange

        def found(token: LoginToken | None, error: OttlaError | None) -> None:
            if token is None:
                done(None, error)
            else:
                done(BearerExchange(token, lambda: tokens.refused(token)), None)

        tokens.get(found)
