"""How a broker gets in where the others listen for brokers: TLS by that listener's settings, and a login by SASL.

All brokers of a cluster have the same settings for it. The login says as which user the broker speaks; that it is a broker is proved after
it by the cluster's secret (`security/cluster_identity.py`).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from ottla.base.config import BrokerConfig
from ottla.base.ports import Random
from ottla.security.mechanisms import NONCE_BYTES

if TYPE_CHECKING:
    from ottla.client.core.sasl import SaslExchange


class BrokerAccess:
    """`peers.Access`. The password is read anew for each connection."""

    def __init__(self, config: BrokerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._endpoint = next(endpoint for endpoint in config.endpoints if endpoint.name == config.inter_broker_listener)
        self.tls = self._endpoint.name if self._endpoint.is_tls else ""

    def login(self) -> SaslExchange | None:
        login = self._config.of_listeners.broker_login(self._endpoint)
        if login is None:
            return None
        from ottla.client.core.sasl import exchange  # on use: a broker by itself asks no other

        return exchange(login.mechanism, login.user, login.password, base64.b64encode(self._random.token_bytes(NONCE_BYTES)).decode())
