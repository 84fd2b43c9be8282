"""Opens and keeps clients of the cluster in Spark's processes, one for each set of options, and converts their errors to one line.

Spark's Python processes serve many batches and tasks, one at a time, so a client is opened once and reused. After a transport error all
clients with these options are closed, and the next use opens another one. If a connection breaks, a read-only request (`ask`) is repeated
within the request timeout.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ottla.client import AuthenticationError, AuthorizationError, Client, ClientError, ConnectError, FencedError, TransportError, connect
from ottla.spark.errors import OptionError, PipelineError
from ottla.spark.options import ClusterConnection
from ottla.spark.worker_process import freeze_imports, is_worker_process

T = TypeVar("T")

FIRST_TRIES = 5
"""Attempts for a cluster that this process has not reached yet. The pauses between them take 0.3 seconds."""
PAUSE_S_MIN = 0.02
PAUSE_S_MAX = 0.5

_clients: dict[tuple[int, ClusterConnection, str], Client] = {}
"""Keyed by process too, because a forked child must not use its parent's connections."""
_reached: set[tuple[int, ClusterConnection]] = set()
"""The clusters that this process has reached, so they are asked again after an outage."""


def client_of(connection: ClusterConnection, *, use: str = "") -> Client:
    """Returns this process's client for these options. `use` separates clients if several threads need one.

    Raises `OptionError` for invalid options, `ClientError` if no broker can be used.
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
        _reached.add(key[:2])
    return client


def forget(connection: ClusterConnection) -> None:
    for key in [key for key in _clients if key[:2] == (os.getpid(), connection)]:
        _clients.pop(key).close()


@contextmanager
def explained(connection: ClusterConnection, option: str) -> Iterator[None]:
    """Converts a client's error to a `PipelineError` of one line that begins with the name of the option to check: the option of the
    address, the login or the group if one of these caused the error, else `option`. Transport errors also close the clients.
    """
    try:
        yield
    except TransportError as error:
        forget(connection)
        raise PipelineError(f"kafka.bootstrap.servers={connection.bootstrap}: {error}") from None
    except ClientError as error:
        raise PipelineError(f"{_option_of(error, option)}: {error}") from None


def ask(connection: ClusterConnection, option: str, question: Callable[[Client], T], *, use: str = "") -> T:
    """Returns the result of a read-only request. If a connection breaks, it repeats the request, until `timeout_s` seconds after the first
    attempt. Raises `PipelineError` as `explained` does.

    `use` chooses the client as in `client_of`. A cluster that this process has not reached yet gets only a few quick attempts, because
    waiting does not help if the address is wrong.
    """
    deadline, pause_s = time.monotonic() + connection.timeout_s, PAUSE_S_MIN
    first_tries = 0 if (os.getpid(), connection) in _reached else FIRST_TRIES
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
    """Wraps functions that Spark calls, so that Spark shows a `PipelineError` without a stack trace. The message of such an error is
    sufficient.

    In Spark's Python workers, which end with their first error, it sets the environment variable SPARK_HIDE_TRACEBACK, and tunes the memory
    (`freeze_imports`). It changes nothing in other processes.
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
