"""The quotas of one broker: enforces the quotas in the cluster's metadata and in the settings.

Imported when the first quota is set. Without a quota for clients, the dispatcher's throttling and `Broker.quotas` are None, so that a
request costs one comparison; likewise `Listeners.gate` for connections.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.base.cluster_metadata import QuotaEntity
from ottla.handlers.context import Broker
from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.connections import ConnectionRates
from ottla.security.quotas.rates import Windows
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.listener import Listeners
from ottla.server.quotas.connection_gate import ConnectionGate
from ottla.server.quotas.throttling import Throttling


class Quotas:
    """The quotas of clients and the connection rates, with the parts that enforce them."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher, listeners: Listeners) -> None:
        config, clock = broker.config, broker.clock
        windows = Windows(config.quota_window_num, 1000 * config.quota_window_size_seconds)
        mutation_windows = Windows(config.controller_quota_window_num, 1000 * config.controller_quota_window_size_seconds)
        self._broker = broker
        self._dispatcher = dispatcher
        self._listeners = listeners
        self.clients = ClientQuotas(clock.monotonic_ms, windows, mutation_windows)
        self.connections = ConnectionRates(clock.monotonic_ms, windows)
        self.gate = ConnectionGate(self.connections, broker.ages.timers, listeners.admit)
        self.throttling = Throttling(self.clients, clock, broker.ages.timers)

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], changed: Collection[QuotaEntity] | None) -> None:
        """Applies these quotas and the rates in the settings, and ends all throttling. `changed` has the entities with changed quotas, None
        for all."""
        config = self._broker.config
        self.clients.update(quotas, changed)
        self.throttling.release_all()
        self._broker.quotas = self.clients if self.clients.is_set else None
        self._dispatcher.limit(self.throttling if self.clients.is_set else None)
        self.connections.update(
            broker_rate=config.max_connection_creation_rate,
            listener_rates=config.of_listeners.connection_rates(config.endpoints),
            protected_listener=config.inter_broker_listener if len(config.endpoints) > 1 else "",
            quotas=quotas,
            changed=changed,
        )
        self._listeners.gate = self.gate if self.connections.is_set else None
