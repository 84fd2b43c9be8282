"""Clients of the cluster in Spark's processes, one for each way to connect, kept as long as the process; and errors as one line.

Spark's Python processes serve many batches and tasks one after another, each on one thread, so a client is opened once and used again. A
client whose cluster could not be reached is dropped: the next use begins anew. Questions that change nothing (`ask`) are asked again while
connections break, until the time for a series of tries is over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ottla.client import AuthenticationError, AuthorizationError, Client, ClientError, ConnectError, FencedError, TransportError, connect
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.options import Connection
from ottla.spark.worker_process import freeze_imports, is_worker_process

T = TypeVar("T")

FIRST_TRIES = 5
"""So often a cluster that this process has not reached yet is tried, within half a second."""
PAUSE_S_MIN = 0.02
PAUSE_S_MAX = 0.5

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


def ask(connection: Connection, option: str, question: Callable[[Client], T], *, use: str = "") -> T:
    """Returns the answer to a question that may be asked more than once; while connections break, it is, for `timeout_s` at most.

    `use` chooses the client as for `client_of`. A cluster that this process has not reached yet gets a few quick tries: waiting does not
    help who mistyped an address.
    """
    deadline, pause_s = time.monotonic() + connection.timeout_s, PAUSE_S_MIN
    first_tries = FIRST_TRIES
    with explained(connection, option):
        while True:
            try:
                client = client_of(connection, use=use)
                first_tries = 0
                return question(client)
            except ConnectError:
                first_tries -= 1
                if first_tries == 0 or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(PAUSE_S_MAX, 2 * pause_s)


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
