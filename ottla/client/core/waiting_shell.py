"""Shells as operations see them. Imported for type checking only: classes of protocols cost time at the start."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ottla.client.core.conversation import Conversation

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")


class WaitingShell(Protocol[C_co]):
    """An object of a shell that runs the conversations of `core` to their ends."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Conversation[T]) -> T: ...


class AwaitingShell(Protocol[C_co]):
    """An object of a shell whose tasks await the ends of conversations."""

    @property
    def core(self) -> C_co: ...

    def run(self, conversation: Conversation[T]) -> Coroutine[Any, Any, T]: ...


class WaitingClient(Protocol[C_co]):
    """The public client of a shell that waits."""

    @property
    def cluster(self) -> WaitingShell[C_co]: ...


class AwaitingClient(Protocol[C_co]):
    """The public client of a shell whose tasks await."""

    @property
    def cluster(self) -> AwaitingShell[C_co]: ...
