"""Finds the addresses at which other brokers accept connections from brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.config import BrokerConfig

log = logging.getLogger("ottla.peers")


class BrokerAddresses:
    """Finds, among the listeners that another broker has registered, the one of `inter.broker.listener.name` of this broker. A broker
    without such a listener cannot be reached; each of its registrations is logged once."""

    def __init__(self, config: BrokerConfig, known_broker: Callable[[int], BrokerMetadata | None]) -> None:
        self._this_broker = config.this_broker_id
        self._listener = config.inter_broker_listener
        self._known_broker = known_broker
        self._noted: dict[int, int] = {}

    def find(self, broker_id: int) -> tuple[str, int] | None:
        """Implements `ports.Locate`: returns host and port, or None for an unknown broker or listener."""
        known = None if broker_id == self._this_broker else self._known_broker(broker_id)
        if known is None:
            return None
        address = known.endpoints.get(self._listener)
        if address is None and self._noted.get(broker_id) != known.epoch:
            self._noted[broker_id] = known.epoch
            log.warning(
                "broker %d cannot be reached: brokers speak to each other at the listener %s here (inter.broker.listener.name), it has %s",
                broker_id, self._listener, ", ".join(sorted(known.endpoints)) or "none",
            )  # fmt: skip
        return address
