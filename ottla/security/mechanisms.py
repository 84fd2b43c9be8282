"""The SASL mechanisms of each listener, made from its settings (`base/settings/listener_values.py`).

What can change while the broker runs (users, their passwords) is read at each login. Which mechanisms a listener offers is read when a
client connects. Left out: how a broker proves itself to another one (`cluster_identity.py`), which every listener for brokers has.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.base.config import BrokerConfig
from ottla.base.delegation_token import DelegationToken
from ottla.base.ports import Ports
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
from ottla.security.tokens import Token

log = logging.getLogger("ottla.security")

NONCE_BYTES = 18


class ListenerMechanisms:
    """Makes exchanges for clients of one broker."""

    def __init__(
        self, config: BrokerConfig, ports: Ports, stored: Callable[[], Stored], read_secret: Secret,
        find_token: Callable[[str], DelegationToken | None] | None = None,
    ) -> None:  # fmt: skip
        """`stored`: the SCRAM credentials; `read_secret`: asks for the cluster's secret; `find_token`: a delegation token by which one
        may log in now, None without such tokens."""
        self._find_token: FindToken | None = None
        if find_token is not None:
            from ottla.security.token_logins import TokenLogins  # on use: most brokers have no delegation tokens

            self._find_token = TokenLogins((config.delegation_token_key or "").encode(), find_token, ports.threads).find
        self._config = config
        self._ports = ports
        self._read_secret = read_secret
        self._secret: bytes | None = None
        self._scram = {mechanism: ScramUsers(mechanism, stored, self._known_secret) for mechanism in HASHES}
        self._signing_keys: dict[str, tuple[TokenOptions, SigningKeys]] = {}
        """The keys for tokens of each listener, and what they were made from."""

    def of(self, endpoint: Endpoint) -> Mechanisms | None:
        """The mechanisms of a listener now; None where clients do not authenticate by SASL."""
        if not endpoint.is_authenticated_by_sasl:
            return None
        names = self._config.of_listeners.mechanisms(endpoint)
        return {name: begin for name in names if (begin := self._beginning(name, endpoint.name)) is not None}

    def prepare(self, endpoints: list[Endpoint]) -> None:
        """Asks for what a listener's mechanisms need: the cluster's secret, the keys for tokens; warns of what can be read on the way."""
        for endpoint in endpoints:
            names = self._config.of_listeners.mechanisms(endpoint)
            if not endpoint.is_tls and PLAIN in names:
                log.warning("listener %s: PLAIN without TLS sends passwords in clear; use SASL_SSL or SCRAM", endpoint.name)
            if OAUTHBEARER in names:
                self._prepare_tokens(endpoint.name)
            if any(name in HASHES for name in names):
                self._known_secret()

    def _known_secret(self) -> bytes | None:
        """None as long as it is not known; each call asks for it again."""
        if self._secret is None:
            self._read_secret(self._know_secret)
        return self._secret

    def _know_secret(self, secret: bytes | None) -> None:
        self._secret = secret

    def _beginning(self, mechanism: str, listener: str) -> Callable[[], Exchange] | None:
        """None for a mechanism that is not served."""
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
        return OAuthBearerServer(options, verify, self._ports.clock.wall_ms)

    def _prepare_tokens(self, listener: str) -> None:
        options, reason = self._token_options(listener)
        if options.is_unsecured_allowed:
            log.warning("listener %s: ottla.sasl.oauthbearer.unsecured.allowed lets clients log in under any name", listener)
        elif not reason:
            self._keys_of(listener, options).prepare()

    def _token_options(self, listener: str) -> tuple[TokenOptions, str]:
        """The options in force, and why no token can be taken by them: they may have changed while the broker runs."""
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
        """No users where the setting was changed to nonsense while the broker runs."""
        try:
            return self._config.of_listeners.plain_users(listener)
        except SettingError:
            return {}


def _refuse(reason: str, _token: Token, done: Callable[[str], object]) -> None:
    done(reason)
