"""A broker for tests of other projects: `with ottla.testing.Broker() as broker: ...`, and the pytest fixtures in `plugin.py`.

Modules are imported on use, because pytest imports this package in every run where it is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.handle import BrokerHandle

__all__ = ["Broker", "BrokerHandle"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from ottla.testing.broker import Broker

        return Broker
    if name == "BrokerHandle":
        from ottla.testing.handle import BrokerHandle

        return BrokerHandle
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
