"""The interfaces of the clients for operations. Imported only for type checking, because `typing.Protocol` classes slow down the start."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ottla.client.core.conversation import Conversation

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")


class WaitingShell(Protocol[C_co]):
    """A blocking object with `run`, which runs a conversation of `core` to its end."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Conversation[T]) -> T: ...


class AwaitingShell(Protocol[C_co]):
    """An asyncio object with the coroutine `run`, which runs a conversation of `core` to its end."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Conversation[T]) -> Coroutine[Any, Any, T]: ...


class WaitingClient(Protocol[C_co]):
    """The blocking public client."""

    @property
    def cluster(self) -> WaitingShell[C_co]: ...


class AwaitingClient(Protocol[C_co]):
    """The asyncio public client."""

    @property
    def cluster(self) -> AwaitingShell[C_co]: ...
