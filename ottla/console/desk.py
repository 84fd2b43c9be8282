"""`Desk`: the connections and the snapshot of one identity (a user that has logged in, or the console itself). Pages show and do what the
cluster allows this identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.blocking.cluster import Cluster
from ottla.client.security import security_of
from ottla.console.broker_ports import BrokerPorts
from ottla.console.schemas import Schemas
from ottla.console.snapshot import Snapshot
from ottla.console.wire import Wire

CLIENT_ID = "ottla-console"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Settings(NamedTuple):
    """The settings of a console. `properties` are Kafka's client properties. If `metrics` has addresses, only these HTTP ports are read.
    `schemas` has the schemas of files and of a registry.
    """

    properties: Mapping[str, str]
    timeout_s: float = 15.0
    host: str = "127.0.0.1"
    port: int = 8080
    is_read_only: bool = False
    needs_login: bool = False
    metrics: Sequence[str] = ()
    metrics_credentials: str | None = None
    schemas: Schemas = Schemas()


class Desk:
    """See the module. Pages share the connections `cluster`, and `extended` for Ottla's own APIs, which the page of recorded requests
    (`wire.py`) uses too. The snapshot has its own connections.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._properties = settings.properties
        self.cluster = self.new_cluster()
        observing = self.new_cluster()
        self.snapshot = Snapshot(observing, BrokerPorts(observing, settings.metrics, settings.metrics_credentials))
        self.extended = self.new_cluster(with_extensions=True)
        """For requests of Ottla's own APIs."""
        self.wire = Wire(self.extended)

    def new_cluster(self, *, with_extensions: bool = False) -> Cluster:
        """Returns connections with this identity, which the caller closes."""
        return Cluster(
            self._properties.get("bootstrap.servers", "localhost:9092"),
            client_id=self._properties.get("client.id", CLIENT_ID),
            timeout_s=self.settings.timeout_s,
            security=security_of(self._properties),
            with_extensions=with_extensions,
        )

    def release(self) -> None:
        self.snapshot.stop()
        self.cluster.close()
        self.extended.close()
