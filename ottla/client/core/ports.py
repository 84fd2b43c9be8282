"""Interfaces of connections and clients. Imported only for type checking, because `typing.Protocol` classes slow down the start."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Protocol, TypeVar

from ottla.client.addresses import Address

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")


class Link(Protocol):
    """A connection to one broker, made by the blocking or asyncio client."""

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


class WaitingShell(Protocol[C_co]):
    """A blocking object with `run`, which runs a conversation of `core` to its end."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Generator[Any, Any, T]) -> T: ...


class AwaitingShell(Protocol[C_co]):
    """An asyncio object with the coroutine `run`, which runs a conversation of `core` to its end."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Generator[Any, Any, T]) -> Coroutine[Any, Any, T]: ...


class WaitingClient(Protocol[C_co]):
    """The blocking public client."""

    @property
    def cluster(self) -> WaitingShell[C_co]: ...


class AwaitingClient(Protocol[C_co]):
    """The asyncio public client."""

    @property
    def cluster(self) -> AwaitingShell[C_co]: ...
