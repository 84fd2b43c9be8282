"""The interface of a connection for conversations. Imported only for type checking: `typing.Protocol` classes slow down the start."""

from __future__ import annotations

from typing import Protocol

from ottla.client.addresses import Address


class Link(Protocol):
    """An open connection to one broker, made by the blocking or asyncio client."""

    @property
    def address(self) -> Address: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def in_flight(self) -> int: ...

    def version_of(self, key: int) -> int: ...

    def offers(self, key: int, version: int = 0) -> bool: ...

    def feature_level(self, name: str) -> int: ...

    def close(self) -> None: ...


class HasTimeout(Protocol):
    """A cluster with a request timeout: `ClusterCore`, `Cluster` or `AsyncCluster`."""

    timeout_s: float
