"""A connection as conversations see it. Imported for type checking only: classes of protocols cost time at the start."""

from __future__ import annotations

from typing import Protocol

from ottla.client.addresses import Address


class Link(Protocol):
    """An open connection to one broker, made by a shell."""

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
    """Anything with the timeout of requests: a cluster of the core or of a shell."""

    timeout_s: float
