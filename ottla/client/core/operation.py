"""Decorators for operations: conversations (`conversation.py`) that can also be called as functions and methods of the clients.

`@operation` declares an operation of administration once. Called with a `ClusterCore` it returns a conversation, for other conversations
and for the asyncio client. Called with a blocking object, such as `client.blocking.cluster.Cluster`, it runs the conversation and returns
the result. As a class attribute of a blocking class it becomes a method. A `ClientOperation` becomes a method of both public clients: a
blocking method of `Client`, and a coroutine of `AsyncClient`. Both check the arguments of calls by clients (`core/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ottla.client.core.arguments import Arguments
from ottla.client.core.conversation import Conversation

if TYPE_CHECKING:
    from ottla.client.core.cluster import ClusterCore
    from ottla.client.core.ports import AwaitingClient, WaitingClient, WaitingShell

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Operation(Generic[C, P, T]):
    """See the module. `C` is the class in `client.core` that is the first argument of the conversation."""

    def __init__(self, conversation: Callable[Concatenate[C, P], Conversation[T]]) -> None:
        self._conversation = conversation
        self._arguments = Arguments(conversation)
        update_wrapper(self, conversation)

    @overload
    def __call__(self: Operation[ClusterCore, P, T], core: ClusterCore, /, *args: P.args, **kwargs: P.kwargs) -> Conversation[T]: ...

    @overload
    def __call__(self, shell: WaitingShell[C], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def __call__(self, shell: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if not hasattr(shell, "run"):
            return self._conversation(shell, *args, **kwargs)
        checked, options = self._arguments.check(args, kwargs)
        return shell.run(self._conversation(shell.core, *checked, **options))

    @overload
    def __get__(self, shell: None, owner: Any = None) -> Operation[C, P, T]: ...

    @overload
    def __get__(self, shell: WaitingShell[C], owner: Any = None) -> Callable[P, T]: ...

    def __get__(self, shell: Any, owner: Any = None) -> Any:
        return self if shell is None else MethodType(self, shell)


operation = Operation


class ClientOperation(Generic[P, T]):
    """An operation of the public clients. It takes no longer than the client's `timeout_s`, unless its conversation makes the deadline
    itself, from an argument `timeout_s`.
    """

    def __init__(self, conversation: Callable[Concatenate[ClusterCore, P], Conversation[T]], *, has_own_deadline: bool = False) -> None:
        self._conversation = conversation
        self._arguments = Arguments(conversation)
        self._has_own_deadline = has_own_deadline
        update_wrapper(self, conversation)

    def __call__(self, client: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        core = client.cluster.core
        checked, options = self._arguments.check(args, kwargs)
        asked = self._conversation(core, *checked, **options)
        return client.cluster.run(asked if self._has_own_deadline else core.in_time(asked))

    @overload
    def __get__(self, client: None, owner: Any = None) -> ClientOperation[P, T]: ...

    @overload
    def __get__(self, client: WaitingClient[ClusterCore], owner: Any = None) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: AwaitingClient[ClusterCore], owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: Any = None) -> Any:
        return self if client is None else MethodType(self, client)
