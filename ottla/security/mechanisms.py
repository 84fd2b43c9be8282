"""The SASL mechanisms of each listener, created from its settings (`base/settings/listener_values.py`).

Values that can change while the broker runs (users, passwords) are read at each login. The list of mechanisms is read when a client
connects. `cluster_identity.py` has the mechanism between brokers, which every listener for brokers offers.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.delegation_token import DelegationToken
from ottla.base.settings.listeners import Endpoint
from ottla.base.settings.oauthbearer import TokenOptions
from ottla.base.settings.setting import SettingError
from ottla.security.authentication import Exchange, Mechanisms
from ottla.security.cluster_identity import Secret
from ottla.security.credentials import ScramUsers, Stored
from ottla.security.oauthbearer import MECHANISM as OAUTHBEARER
from ottla.security.oauthbearer import OAuthBearerServer, Verify
from ottla.security.plain import MECHANISM as PLAIN
from ottla.security.plain import PlainServer
from ottla.security.scram import HASHES
from ottla.security.scram_server import FindToken, ScramServer
from ottla.security.signing_keys import SigningKeys
from ottla.security.web_tokens import WebToken

log = logging.getLogger("ottla.security")

NONCE_BYTES = 18


class ListenerMechanisms:
    """Creates the SASL exchanges of the clients of one broker. An exchange is one login of a client."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, stored: Callable[[], Stored], read_secret: Secret,
        find_token: Callable[[str], DelegationToken | None] | None = None,
    ) -> None:  # fmt: skip
        """`stored` returns the SCRAM credentials, and `read_secret` requests the cluster's secret. `find_token` returns a delegation token
        that may be used now; it is None if there are no delegation tokens."""
        self._find_token: FindToken | None = None
        if find_token is not None:
            from ottla.security.delegation_token_logins import TokenLogins  # on use: most brokers have no delegation tokens

            self._find_token = TokenLogins((config.delegation_token_key or "").encode(), find_token, ports.threads).find
        self._config = config
        self._ports = ports
        self._read_secret = read_secret
        self._secret: bytes | None = None
        self._scram = {mechanism: ScramUsers(mechanism, stored, self._known_secret) for mechanism in HASHES}
        self._signing_keys: dict[str, tuple[TokenOptions, SigningKeys]] = {}
        """The signing keys for tokens of each listener, and the options that they were made from."""

    def of(self, endpoint: Endpoint) -> Mechanisms | None:
        """Returns the current mechanisms of a listener; None if its clients do not authenticate by SASL."""
        if not endpoint.is_authenticated_by_sasl:
            return None
        names = self._config.of_listeners.mechanisms(endpoint)
        return {name: begin for name in names if (begin := self._beginning(name, endpoint.name)) is not None}

    def prepare(self, endpoints: list[Endpoint]) -> None:
        """Requests the data that the mechanisms need (the cluster's secret, signing keys), and warns of insecure settings."""
        for endpoint in endpoints:
            names = self._config.of_listeners.mechanisms(endpoint)
            if not endpoint.is_tls and PLAIN in names:
                log.warning("listener %s: PLAIN without TLS sends passwords in clear; use SASL_SSL or SCRAM", endpoint.name)
            if OAUTHBEARER in names:
                self._prepare_tokens(endpoint.name)
            if any(name in HASHES for name in names):
                self._known_secret()

    def _known_secret(self) -> bytes | None:
        """Returns the cluster's secret. While it is unknown, requests it and returns None."""
        if self._secret is None:
            self._read_secret(self._know_secret)
        return self._secret

    def _know_secret(self, secret: bytes | None) -> None:
        self._secret = secret

    def _beginning(self, mechanism: str, listener: str) -> Callable[[], Exchange] | None:
        """Returns the function that starts an exchange; None for an unsupported mechanism."""
        if mechanism == PLAIN:
            return lambda: PlainServer(partial(self._plain_users, listener))
        if mechanism == OAUTHBEARER:
            return partial(self._token_server, listener)
        if mechanism not in HASHES:
            return None
        users = self._scram[mechanism]

        def begin() -> Exchange:
            nonce = base64.b64encode(self._ports.random.token_bytes(NONCE_BYTES)).decode()
            return ScramServer(mechanism, users.find, users.decoy, nonce, self._find_token)

        return begin

    # Tokens

    def _token_server(self, listener: str) -> Exchange:
        options, reason = self._token_options(listener)
        verify: Verify | None = None
        if reason:
            verify = partial(_refuse, reason)
        elif not options.is_unsecured_allowed:
            verify = self._keys_of(listener, options).verify
        return OAuthBearerServer(options, verify, self._ports.ages.clock.wall_ms)

    def _prepare_tokens(self, listener: str) -> None:
        options, reason = self._token_options(listener)
        if options.is_unsecured_allowed:
            log.warning("listener %s: ottla.sasl.oauthbearer.unsecured.allowed lets clients log in under any name", listener)
        elif not reason:
            for setting in options.unverified():
                log.warning("listener %s: %s lets clients log in with any %s", listener, setting, setting.rpartition(".")[2])
            self._keys_of(listener, options).prepare()

    def _token_options(self, listener: str) -> tuple[TokenOptions, str]:
        """Returns the current options, and the reason why these options accept no token. The reason is empty if they accept tokens. The
        options may change while the broker runs."""
        options = self._config.of_listeners.tokens(listener)
        return options, options.why_unusable()

    def _keys_of(self, listener: str, options: TokenOptions) -> SigningKeys:
        found = self._signing_keys.get(listener)
        if found is None or found[0] != options:
            assert self._ports.read_document is not None, "an address of keys, and nothing to read it with"
            keys = SigningKeys(options, self._ports.read_document, self._ports.clock, self._ports.threads)
            found = self._signing_keys[listener] = options, keys
        return found[1]

    def _plain_users(self, listener: str) -> Mapping[str, str]:
        """Returns the users of PLAIN, or no users if the setting was changed to an invalid value."""
        try:
            return self._config.of_listeners.plain_users(listener)
        except SettingError:
            return {}


def _refuse(reason: str, _token: WebToken, done: Callable[[str], object]) -> None:
    done(reason)
