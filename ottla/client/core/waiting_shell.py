"""The cluster of a shell that waits, as operations see it. Imported for type checking only: classes of protocols cost time at the start."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ottla.client.core.cluster import ClusterCore
from ottla.client.core.procedure import Procedure

T = TypeVar("T")


class WaitingShell(Protocol):
    """The cluster of a shell that runs a procedure to its end."""

    @property
    def core(self) -> ClusterCore: ...

    def run(self, procedure: Procedure[T]) -> T: ...
