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
from ottla.base.ports import Random
from ottla.base.settings.listeners import Endpoint
from ottla.base.settings.setting import SettingError
from ottla.security.authentication import Exchange, Mechanisms
from ottla.security.cluster_identity import Secret
from ottla.security.credentials import ScramUsers, Stored
from ottla.security.plain import MECHANISM as PLAIN
from ottla.security.plain import PlainServer
from ottla.security.scram import HASHES
from ottla.security.scram_server import ScramServer

log = logging.getLogger("ottla.security")

NONCE_BYTES = 18


class ListenerMechanisms:
    """Makes exchanges for clients of one broker."""

    def __init__(self, config: BrokerConfig, random: Random, stored: Callable[[], Stored], read_secret: Secret) -> None:
        """`stored`: the SCRAM credentials; `read_secret`: asks for the cluster's secret."""
        self._config = config
        self._random = random
        self._read_secret = read_secret
        self._secret: bytes | None = None
        self._scram = {mechanism: ScramUsers(mechanism, stored, self._known_secret) for mechanism in HASHES}

    def of(self, endpoint: Endpoint) -> Mechanisms | None:
        """The mechanisms of a listener now; None where clients do not authenticate by SASL."""
        if not endpoint.is_authenticated_by_sasl:
            return None
        names = self._config.of_listeners.mechanisms(endpoint)
        return {name: self._beginning(name, endpoint.name) for name in names if name == PLAIN or name in HASHES}

    def prepare(self, endpoints: list[Endpoint]) -> None:
        """Asks for the cluster's secret where a listener has a mechanism that needs it; warns of what can be read on the way."""
        for endpoint in endpoints:
            if not endpoint.is_tls and PLAIN in self._config.of_listeners.mechanisms(endpoint):
                log.warning("listener %s: PLAIN without TLS sends passwords in clear; use SASL_SSL or SCRAM", endpoint.name)
        if any(name in HASHES for endpoint in endpoints for name in self._config.of_listeners.mechanisms(endpoint)):
            self._known_secret()

    def _known_secret(self) -> bytes | None:
        """None as long as it is not known; each call asks for it again."""
        if self._secret is None:
            self._read_secret(self._know_secret)
        return self._secret

    def _know_secret(self, secret: bytes | None) -> None:
        self._secret = secret

    def _beginning(self, mechanism: str, listener: str) -> Callable[[], Exchange]:
        if mechanism == PLAIN:
            return lambda: PlainServer(partial(self._plain_users, listener))
        users = self._scram[mechanism]
        return lambda: ScramServer(mechanism, users.find, users.decoy, base64.b64encode(self._random.token_bytes(NONCE_BYTES)).decode())

    def _plain_users(self, listener: str) -> Mapping[str, str]:
        """No users where the setting was changed to nonsense while the broker runs."""
        try:
            return self._config.of_listeners.plain_users(listener)
        except SettingError:
            return {}
