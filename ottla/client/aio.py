"""The asyncio client: performs the network I/O for the conversations of `client.core`, which are generators of requests without I/O
(`core/conversation.py`). `AsyncCluster.run` runs any conversation. Tasks may share a cluster: their requests to one broker share one
connection, and each task gets its own answer. Only fetches use separate connections. A request that is not answered in time closes its
connection: a broker answers in order, so no later request would get an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import random
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ottla._version import __version__
from ottla.base.errors import ErrorCode, OttlaError, WireError
from ottla.client.addresses import Address, parse_addresses
from ottla.client.core.arguments import checked
from ottla.client.core.cluster import ClusterCore
from ottla.client.core.connection import CLIENT_SOFTWARE, ConnectionProtocol
from ottla.client.core.conversation import Ask, AskAll, AskRolling, Conversation, Effect, Open
from ottla.client.core.operations import Operations
from ottla.client.core.request_line import RequestLine
from ottla.client.errors import ClientError, ConnectError, RequestTimeoutError, refused
from ottla.client.security import Security, is_about_tls, lost, no_tls, reason_of, security_of
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.core.sasl import SaslExchange

CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0

P = ParamSpec("P")
T = TypeVar("T")


class AsyncConnection(asyncio.BufferedProtocol):
    """One connection to one broker; a `Link` for conversations. Made by `connect`."""

    def __init__(self, address: Address, protocol: ConnectionProtocol, security: Security | None = None) -> None:
        self.address = address
        self._security = security
        self._line: RequestLine[asyncio.Future[Any]] = RequestLine(protocol, random())
        self._login: asyncio.Task[None] | None = None
        self.protocol = protocol
        self.version_of = protocol.versions.version_of
        self.offers = protocol.versions.offers
        self.feature_level = protocol.versions.feature_level
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    @classmethod
    async def connect(
        cls,
        address: Address,
        *,
        client_id: str = CLIENT_SOFTWARE,
        security: Security | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        with_extensions: bool = False,
    ) -> AsyncConnection:
        """Connects, negotiates versions and authenticates. Raises a ClientError such as `ConnectError` or `AuthenticationError` if that
        fails. An exception of the program's own function for bearer tokens is raised unchanged, as in the blocking client. `timeout_s` does
        not include the time to fetch a bearer token.
        """
        protocol = ConnectionProtocol(
            str(address),
            client_id=client_id,
            software_version=__version__,
            sasl=await _exchange(security),
            with_extensions=with_extensions,
        )
        connection = cls(address, protocol, security)
        context = None if security is None else security.context
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=context, server_hostname=address.host if context else None
                )
                await connection._ready
        except TimeoutError:
            connection.close()
            raise _unreachable(address, timeout_s) from None
        except (OSError, UnicodeError) as error:
            connection.close()
            if context is not None and isinstance(error, OSError) and is_about_tls(error):
                raise no_tls(address, error) from None
            raise ConnectError(f"cannot reach {address}: {reason_of(error)}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._line.is_open

    @property
    def in_flight(self) -> int:
        return len(self._line)

    def close(self) -> None:
        """Closes the connection. The futures of unanswered requests get a `ConnectError`."""
        if self._login is not None:
            self._login.cancel()
        self._fail(ConnectError(f"the connection to {self.address} is closed"))

    def _fail(self, error: OttlaError) -> None:
        self._is_closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for future in self._line.close():
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks the error as retrieved, so asyncio logs nothing if the waiting task was cancelled
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks the error as retrieved if no task waits for the opening

    # Requests

    def send(self, body: Request, *, version: int | None = None) -> asyncio.Future[Any]:
        """Sends a request, or holds it while a new login is due. The future gets the answer or the error. Raises a `ClientError` if the
        connection is closed or the request cannot be encoded.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        frame = self._line.ask(body, version, future, time.monotonic())
        if frame is not None:
            self._write(frame)
        self._login_again_when_idle()
        return future

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None, "an open connection has a transport"
        self._transport.write(frame)

    def _login_again_when_idle(self) -> None:
        """Starts a new login if requests are held for it and no request is in flight."""
        if not self._line.begins_login():
            return
        self._login = asyncio.get_running_loop().create_task(self._login_again())
        self._login.add_done_callback(self._login_begun)

    async def _login_again(self) -> None:
        exchange = await _exchange(self._security)
        assert exchange is not None, "a session without a login"
        if self._transport is not None:  # the connection may have closed meanwhile
            self._transport.write(self.protocol.login_again(exchange))

    def _login_begun(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failed = f"the program's function for bearer tokens failed ({type(error).__name__})"
            self._fail(error if isinstance(error, OttlaError) else refused(ErrorCode.SASL_AUTHENTICATION_FAILED, failed))

    def _logged_in(self) -> None:
        """Completes the opening of the connection. After a later login, sends the held requests."""
        for future, frame in self._line.logged_in(time.monotonic()):
            if isinstance(frame, OttlaError):
                future.set_exception(frame)
            else:
                self._write(frame)
        if not self._ready.done():
            self._ready.set_result(None)

    async def receive(self, future: asyncio.Future[Any], timeout_s: float) -> Any:
        """Waits for the answer to a request of `send`. After `timeout_s` it closes the connection and raises `RequestTimeoutError`."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            late = RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s")
            self._fail(late)
            future.exception()
            raise late from None

    async def request(self, body: Request, *, version: int | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        return await self.receive(self.send(body, version=version), timeout_s)

    # The protocol of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._is_closed:  # closed while asyncio was connecting
            transport.abort()
            return
        self._transport = transport
        transport.write(self.protocol.start())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.protocol.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.protocol.frames.buffer_updated(nbytes)
        while not self._is_closed and self._take_frame():
            pass

    def _take_frame(self) -> bool:
        """Processes the next frame. Returns whether there was a complete one."""
        try:
            frame = self.protocol.frames.next_frame()
            if frame is None:
                return False
            if self.protocol.is_ready:
                answer = self.protocol.response(frame)
                future = self._line.in_flight.popleft()
                if not future.done():
                    future.set_result(answer)
                self._login_again_when_idle()
            else:
                self._advance(frame)
        except WireError as error:
            self._fail(self.protocol.malformed(error, self.protocol.pending[0] if self.protocol.pending else None))
        except OttlaError as error:
            self._fail(error)
        return True

    def _advance(self, frame: memoryview) -> None:
        data = self.protocol.advance(frame)
        if not self.protocol.is_ready:
            self._write(data)
        else:
            self._logged_in()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        error = self.protocol.hung_up() if exc is None else lost(self.address, exc)
        self._fail(error if self._ready.done() else self.protocol.hang_up_at_start(error))


async def _exchange(security: Security | None) -> SaslExchange | None:
    """Returns a SASL exchange for one connection, None without SASL. If a bearer token has to be fetched first, this runs in a thread."""
    if security is None:
        return None
    return await asyncio.to_thread(security.new_exchange) if security.may_block else security.new_exchange()


class AsyncCluster:
    """The connections to one cluster, shared by any number of tasks of one event loop."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        client_id: str = CLIENT_SOFTWARE,
        timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
        with_extensions: bool = False,
    ) -> None:
        addresses = parse_addresses(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self.core = ClusterCore(addresses, now=time.monotonic, timeout_s=timeout_s)
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._security = security
        self._with_extensions = with_extensions
        self._connections: list[AsyncConnection] = []
        self._opening: dict[Address, asyncio.Task[AsyncConnection]] = {}
        self._is_closed = False

    async def __aenter__(self) -> AsyncCluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections. Calls that wait for an answer or a connection fail, and so do later calls."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self.core.close()
        await asyncio.sleep(0)  # lets the transports report that they are closed

    async def run(self, conversation: Conversation[T]) -> T:
        step, argument = conversation.send, None
        try:
            while True:
                effect = step(argument)
                try:
                    argument, step = await self._perform(effect), conversation.send
                except OttlaError as error:
                    argument, step = error, conversation.throw
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            conversation.close()

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Ask):
            return await self._ask(effect)
        if isinstance(effect, AskAll):
            return await asyncio.gather(*(self._answer_or_error(ask) for ask in effect.asks))
        if isinstance(effect, AskRolling):
            return await self._ask_rolling(effect)
        if isinstance(effect, Open):
            return await self._open(effect)
        await asyncio.sleep(effect.seconds)
        return None

    async def _ask(self, ask: Ask) -> Any:
        connection = ask.link
        assert isinstance(connection, AsyncConnection), "this shell has made every connection"
        timeout_s = self.timeout_s if ask.timeout_s is None else ask.timeout_s
        return await connection.request(ask.body, version=ask.version, timeout_s=timeout_s)

    async def _ask_rolling(self, effect: AskRolling) -> None:
        under_way: deque[asyncio.Task[Any]] = deque()
        try:
            for ask in effect.asks:
                if ask is None:
                    effect.note(await under_way[0])
                    under_way.popleft()
                else:
                    under_way.append(asyncio.create_task(self._answer_or_error(ask)))
            while under_way:
                effect.note(await under_way[0])
                under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()

    async def _answer_or_error(self, ask: Ask) -> Any:
        try:
            return await self._ask(ask)
        except ClientError as error:
            return error

    async def _open(self, effect: Open) -> AsyncConnection:
        if self._is_closed:
            raise _closed(effect.address)
        if effect.is_own:
            return await self._connect(effect.address, effect.timeout_s)
        task = self._opening.get(effect.address)
        if task is None:
            task = self._opening[effect.address] = asyncio.create_task(self._connect(effect.address, None))
            task.add_done_callback(lambda done: self._opened(effect.address, done))
        try:
            async with asyncio.timeout(effect.timeout_s):  # the time of this caller; others may wait longer for the same connection
                return await asyncio.shield(task)
        except TimeoutError:
            raise _unreachable(effect.address, effect.timeout_s or 0.0) from None
        except asyncio.CancelledError:
            if not task.cancelled() or not self._is_closed:
                raise  # the caller's own task was cancelled
            raise _closed(effect.address) from None

    def _opened(self, address: Address, task: asyncio.Task[AsyncConnection]) -> None:
        self._opening.pop(address, None)
        if not task.cancelled():
            task.exception()  # marks the error as retrieved if every waiting task was cancelled

    async def _connect(self, address: Address, timeout_s: float | None) -> AsyncConnection:
        opened = await AsyncConnection.connect(
            address,
            client_id=self._client_id,
            security=self._security,
            timeout_s=min(CONNECT_TIMEOUT_S, self.timeout_s, CONNECT_TIMEOUT_S if timeout_s is None else timeout_s),
            with_extensions=self._with_extensions,
        )
        if self._is_closed:
            opened.close()
            raise _closed(address)
        self._connections = [*(one for one in self._connections if one.is_open), opened]
        return opened


def _unreachable(address: Address, timeout_s: float) -> ConnectError:
    return ConnectError(f"cannot reach {address}: no answer within {timeout_s:g} s; is the address right?")


def _closed(address: Address) -> ClientError:
    """Returns the error of a call on a closed client. It is not a `TransportError`, because conversations retry after those."""
    return ClientError(f"the client was closed before it reached {address}")


# The public client


@checked
async def connect(
    bootstrap: str,
    config: Mapping[str, str] | None = None,
    *,
    client_id: str = CLIENT_SOFTWARE,
    timeout_s: float = REQUEST_TIMEOUT_S,
    with_extensions: bool = False,
    bearer_token: Callable[[], str | tuple[str, float]] | None = None,
) -> AsyncClient:
    """Connects to a cluster, as `ottla.client.connect` does, with the same settings and errors. Tokens are fetched in a thread."""
    security = security_of(config, bearer_token)
    cluster = AsyncCluster(bootstrap, client_id=client_id, timeout_s=timeout_s, security=security, with_extensions=with_extensions)
    try:
        await cluster.run(cluster.core.refresh([]))
    except BaseException:
        await cluster.close()
        raise
    return AsyncClient(cluster)


class AsyncClient(Operations):
    """The public client with coroutines, for any number of tasks of one event loop. Made by `connect`; `async with` closes it."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self.cluster = cluster

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @checked
    async def close(self) -> None:
        """Closes all connections."""
        await self.cluster.close()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id, None if the broker does not send one."""
        return self.cluster.core.metadata.cluster_id

    async def run(self, conversation: Callable[Concatenate[ClusterCore, P], Conversation[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs any conversation of `ottla.client.core` whose first argument is the cluster, such as the conversations of administration."""
        return await self.cluster.run(conversation(self.cluster.core, *args, **kwargs))
