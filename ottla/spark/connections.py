"""Clients of the cluster in Spark's processes, one for each way to connect, kept as long as the process; and errors as one line.

Spark's Python processes serve many batches and tasks one after another, each on one thread, so a client is opened once and used again. A
client whose cluster could not be reached is dropped: the next use begins anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ottla.client import (
    AuthenticationError,
    AuthorizationError,
    Client,
    ClientError,
    ConnectError,
    FencedError,
    TransportError,
    connect,
)
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.options import Connection
from ottla.spark.worker_process import freeze_imports, is_worker_process

T = TypeVar("T")

_clients: dict[tuple[int, Connection, str], Client] = {}
"""By process too: a forked child must not use its parent's connections."""


def client_of(connection: Connection, *, use: str = "") -> Client:
    """The client of this process for these options, and for one use where several threads need one.

    `OptionError` when the options make no sense, `ClientError` when no broker can be used.
    """
    key = (os.getpid(), connection, use)
    client = _clients.get(key)
    if client is None:
        try:
            client = connect(
                connection.bootstrap,
                dict(connection.security),
                client_id=connection.client_id,
                timeout_s=connection.timeout_s,
                with_extensions=True,
            )
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers, kafka.security.protocol, kafka.sasl.*, kafka.ssl.*: {error}") from None
        _clients[key] = client
    return client


def forget(connection: Connection) -> None:
    """Closes the clients of these options, if there are any."""
    for key in [key for key in _clients if key[:2] == (os.getpid(), connection)]:
        _clients.pop(key).close()


@contextmanager
def explained(connection: Connection, option: str) -> Iterator[None]:
    """Turns a client's error into a `PipelineError` of one line that names the option to look at; `option` names topics."""
    try:
        yield
    except TransportError as error:
        forget(connection)
        raise PipelineError(f"kafka.bootstrap.servers={connection.bootstrap}: {error}") from None
    except ClientError as error:
        raise PipelineError(f"{_option_of(error, option)}: {error}") from None


def ask(connection: Connection, option: str, question: Callable[[Client], T]) -> T:
    """Returns the answer to a question that may be asked twice: a connection that broke while it was idle costs only a second try."""
    was_open = (os.getpid(), connection, "") in _clients
    with explained(connection, option):
        try:
            return question(client_of(connection))
        except ConnectError:
            if not was_open:
                raise
        forget(connection)
        return question(client_of(connection))


@contextmanager
def reported() -> Iterator[None]:
    """Wraps what Spark calls: lets it show a `PipelineError` without the frames of its own worker, since the message says what to do.

    A Python worker of Spark ends with its first error, so that the variable outlives nothing. In any other process it is left alone.
    """
    freeze_imports()
    try:
        yield
    except PipelineError:
        if is_worker_process():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _option_of(error: ClientError, option: str) -> str:
    if isinstance(error, AuthenticationError):
        return "kafka.sasl.*"
    if isinstance(error, FencedError):
        return "group"
    if isinstance(error, AuthorizationError) and "GROUP" in error.name:
        return "group"
    return option
