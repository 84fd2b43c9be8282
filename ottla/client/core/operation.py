"""Operations: procedures that a shell's cluster can call as well.

`@operation` declares an operation of administration once. With a `ClusterCore` it is a procedure, for other procedures and for shells that
await. With the cluster of a shell that waits, such as `client.blocking.cluster.Cluster`, it runs to its end and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ottla.client.core.cluster import ClusterCore
from ottla.client.core.procedure import Procedure

if TYPE_CHECKING:
    from ottla.client.core.waiting_shell import WaitingShell

P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[P, T]):
    """See the module."""

    def __init__(self, procedure: Callable[Concatenate[ClusterCore, P], Procedure[T]]) -> None:
        self._procedure = procedure
        update_wrapper(self, procedure)

    @overload
    def __call__(self, cluster: ClusterCore, /, *args: P.args, **kwargs: P.kwargs) -> Procedure[T]: ...

    @overload
    def __call__(self, cluster: WaitingShell, /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def __call__(self, cluster: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(cluster, ClusterCore):
            return self._procedure(cluster, *args, **kwargs)
        return cluster.run(self._procedure(cluster.core, *args, **kwargs))


operation = Operation
