"""Brokers for the tests of other projects. `with ottla.testing.Broker() as broker: ...` starts a broker, `with ottla.testing.Cluster(3) as
cluster: ...` a cluster with ZooKeeper; `plugin.py` has pytest fixtures.

Modules are imported on use, because pytest imports this package in every run where it is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster
    from ottla.testing.handle import BrokerHandle

__all__ = ["Broker", "BrokerHandle", "Cluster"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from ottla.testing.broker import Broker

        return Broker
    if name == "BrokerHandle":
        from ottla.testing.handle import BrokerHandle

        return BrokerHandle
    if name == "Cluster":
        from ottla.testing.cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
