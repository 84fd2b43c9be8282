"""One connection of the blocking client to one broker: performs the socket I/O for `core/connection.py`.

`open` connects, negotiates versions and authenticates. `send` and `receive` are separate, so several requests can be in flight: a broker
answers the requests of one connection in order. `request` sends and receives. `post`, `push` and `take` do the same without waiting: bytes
that the socket does not accept are kept for `push`, and `take` returns only complete answers.

Any network failure (refused, reset, timeout, malformed answer) closes the connection and raises a `TransportError` that names the host. Any
other exception while bytes are sent or received, such as one that a signal handler raises, also closes it: the rest of the stream is
unknown. A closed connection stays closed; `Cluster` opens a new one. `is_open` detects that a broker has closed an idle connection; callers
check it before the next request.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from random import random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla._version import __version__
from ottla.base.errors import WireError
from ottla.client.addresses import Address
from ottla.client.blocking.readable import readable, ready
from ottla.client.core.connection import CLIENT_SOFTWARE, ConnectionProtocol
from ottla.client.core.login_renewal import LoginRenewal
from ottla.client.errors import ConnectError, NotSentError, RequestTimeoutError, TransportError
from ottla.client.security import lost, no_tls, reason_of, wants_more
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.schema import Buffer, Request

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.client.tls import TlsDetails

K = TypeVar("K")
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0

_SOCKET_BUFFER_BYTES = 1024 * 1024
_SCATTERED_BYTES_MIN = 64 * 1024
"""Without TLS and SASL, the pieces of a frame of at least so many bytes are passed to `sendmsg` without joining them. Copying them would
cost more than the longer system call.
"""
_WAIT_S = 1.0
"""The longest single wait for the socket, in seconds. Then the loop checks whether a signal handler has closed the connection."""
_PIECES_MAX = 512
"""Maximum number of pieces in one `sendmsg`; the kernel's limit is 1,024."""


class BlockingConnection:
    """See the module. Not for use by two threads at once."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = CLIENT_SOFTWARE,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
        with_extensions: bool = False,
    ) -> None:
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.request_timeout_s = request_timeout_s
        self.security = security
        self.protocol = ConnectionProtocol(
            str(address),
            client_id=client_id,
            software_version=__version__,
            sasl=None if security is None else security.new_exchange(),
            with_extensions=with_extensions,
        )
        self.version_of = self.protocol.versions.version_of
        self.offers = self.protocol.versions.offers
        self._socket: socket.socket | None = None
        self._open_until: float | None = None
        """The deadline for opening the connection or for a new login, None at other times."""
        self._renewal = LoginRenewal(random())
        self._unsent: deque[memoryview] = deque()
        """Bytes of requests that the socket has not accepted yet."""
        self._early: deque[Any] = deque()
        """Answers that were read before a new login. `receive` and `take` return them first."""

    # Opening and closing

    def open(self, timeout_s: float | None = None) -> BlockingConnection:
        """Connects, negotiates versions, and authenticates if SASL is configured. `timeout_s` (default: `request_timeout_s`) limits the TLS
        handshake, negotiation and login together with connecting. `connect_timeout_s` limits connecting, and the handshake. If a name has
        several IP addresses, each gets an equal part of the time that is left for connecting.
        """
        limit_s = self.request_timeout_s if timeout_s is None else min(timeout_s, self.request_timeout_s)
        self._open_until = time.monotonic() + limit_s
        limit_s = min(limit_s, self.connect_timeout_s)
        try:
            self._socket = self._connected(limit_s)
            self._socket.settimeout(min(limit_s, self._step_s()))
            self._secure()
            self._socket.setblocking(False)
            self._negotiate()
        except TimeoutError:
            self.close()
            raise ConnectError(
                f"cannot reach {self.address}: no answer within {round(limit_s, 2):g} s; is the address right, is a firewall between?"
            ) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            self.close()
            raise ConnectError(f"cannot reach {self.address}: {reason_of(error)}") from None
        except BaseException:
            self.close()
            raise
        self._open_until = None
        return self

    def _connected(self, limit_s: float) -> socket.socket:
        deadline = time.monotonic() + limit_s
        found: list[Any] = [ip_address for *_, ip_address in socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)]
        for left, ip_address in zip(range(len(found), 0, -1), found, strict=True):
            try:
                connected = socket.create_connection(ip_address[:2], timeout=max(0.001, (deadline - time.monotonic()) / left))
                break
            except OSError:
                if left == 1:
                    raise
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
        return connected

    def _secure(self) -> None:
        if self.security is None or not self.security.uses_tls:
            return
        assert self._socket is not None, "the connection was made"
        try:
            self._socket = self.security.wrap(self._socket, self.address.host)
        except TimeoutError:
            raise
        except OSError as error:
            self.close()
            raise no_tls(self.address, error) from None

    def _negotiate(self) -> None:
        protocol = self.protocol
        data = protocol.start()
        try:
            self._write(data)
            frame = self._read_frame(self._step_s())
        except ConnectError as error:
            raise protocol.hang_up_at_start(error) from None
        self._finish_login(frame)

    def _finish_login(self, frame: memoryview) -> None:
        while data := self.protocol.advance(frame):
            self._write(data)
            frame = self._read_frame(self._step_s())
        self._renewal.logged_in(self.protocol.session_lifetime_ms, time.monotonic())

    def _step_s(self) -> float:
        """Returns the time limit of one step, in seconds: until `_open_until` during the opening and a new login."""
        return self.request_timeout_s if self._open_until is None else max(0.001, self._open_until - time.monotonic())

    @property
    def is_login_due(self) -> bool:
        """Whether a new login is due. `send` logs in itself; the caller of `post` calls `login_again` first, in a thread."""
        return self._renewal.is_due(time.monotonic())

    def login_again(self, timeout_s: float | None = None) -> BlockingConnection:
        """Reads all outstanding answers and then logs in again, before the session ends (KIP-368). `timeout_s` (default:
        `request_timeout_s`) limits both together, but not fetching a bearer token.
        """
        try:
            exchange = None if self.security is None else self.security.new_exchange()
            assert exchange is not None, "a session without a login"
            self._open_until = time.monotonic() + (self.request_timeout_s if timeout_s is None else timeout_s)
            while self.protocol.pending:
                self._early.append(self._next_answer(self._step_s()))
            self._write(self.protocol.login_again(exchange))
            self._finish_login(self._read_frame(self._step_s()))
        except BaseException:
            self.close()
            raise
        self._open_until = None
        return self

    def close(self) -> None:
        """Closes the connection. A call of another thread fails with a `TransportError`."""
        open_socket, self._socket = self._socket, None  # first, so that calls of other threads find the connection closed
        self.protocol.close()
        self._unsent = deque()
        if open_socket is not None:
            open_socket.close()

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent. If the broker has closed an idle connection, this closes it too."""
        if self._socket is not None and not self.in_flight and self._has_hung_up(self._socket):
            self.close()
        return self._socket is not None

    def _has_hung_up(self, open_socket: socket.socket) -> bool:
        """Whether an idle connection has something to read: its end, or bytes that belong to no request."""
        if not readable([open_socket.fileno()], 0.0):
            return False
        try:
            open_socket.recv(1)
        except BlockingIOError:
            return False
        except OSError as error:
            return not wants_more(error)
        return True

    def tls(self) -> TlsDetails | None:
        """Returns the TLS version, cipher and certificate; None without TLS, and for a closed connection."""
        from ottla.client.tls import details_of

        return None if self._socket is None else details_of(self._socket)

    @property
    def in_flight(self) -> int:
        """The number of requests whose answers the caller has not taken."""
        return len(self.protocol.pending) + len(self._early)

    @property
    def api_versions(self) -> ApiVersionsResponse:
        return self.protocol.versions.answer

    def feature_level(self, name: str) -> int:
        return self.protocol.versions.feature_level(name)

    # Asking

    def request(self, body: Request, *, timeout_s: float | None = None, version: int | None = None) -> Any:
        """Sends a request, waits for the answer and returns it, an instance of the API's response class."""
        timeout_s = self.request_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        self.send(body, version=version, timeout_s=timeout_s)
        return self.receive(deadline - time.monotonic())

    def send(self, body: Request, *, version: int | None = None, is_answered: bool = True, timeout_s: float | None = None) -> None:
        """Sends a request without waiting for its answer. `receive` returns the answers in the order of sending."""
        if self.is_login_due and self.is_open:
            begun = time.monotonic()
            self.login_again(timeout_s)
            timeout_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - begun))
        self._write(*self.protocol.request_pieces(body, version=version, is_answered=is_answered), timeout_s=timeout_s)

    def post(self, body: Request, *, is_answered: bool = True) -> None:
        """Begins to send a request without waiting. `push` sends the bytes that the socket did not accept."""
        self._post(self.protocol.request_pieces(body, is_answered=is_answered))

    def take(self) -> Any:
        """Returns the answer to the oldest request, or None if it has not arrived completely."""
        if self._early:
            return self._early.popleft()
        frame = self._take_frame() if self.protocol.pending else None
        return None if frame is None else self._answer(frame)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Waits for the answer to the oldest request in flight and returns it."""
        if self._early:
            return self._early.popleft()
        assert self.protocol.pending or self._socket is None, "nothing was asked"
        return self._next_answer(self.request_timeout_s if timeout_s is None else timeout_s)

    def _next_answer(self, timeout_s: float) -> Any:
        return self._answer(self._read_frame(timeout_s))

    def _answer(self, frame: memoryview) -> Any:
        try:
            return self.protocol.response(frame)
        except TransportError:
            self.close()
            raise

    def has_input(self) -> bool:
        """Whether there is input without reading the socket: an earlier answer, received bytes, or a closed connection."""
        return self._socket is None or bool(self._early) or self._has_received()

    def _has_received(self) -> bool:
        """Whether a frame, or bytes that TLS has decrypted, were read from the socket and not taken yet."""
        if self.protocol.frames.has_frame():
            return True
        pending = getattr(self._socket, "pending", None)  # bytes that TLS has decrypted; a plain socket has none
        return pending is not None and bool(pending())

    # Bytes

    def fileno(self) -> int:
        assert self._socket is not None, "the connection is closed"
        return self._socket.fileno()

    def _write(self, *pieces: Buffer, timeout_s: float | None = None) -> None:
        """Sends pieces and waits until the socket has accepted them."""
        timeout_s = self._step_s() if timeout_s is None else timeout_s
        self._post(pieces)
        deadline = time.monotonic() + timeout_s
        while self._unsent:
            if self._wait(deadline, is_for_writing=True):
                self.push()
            elif time.monotonic() >= deadline:
                raise self._broken(RequestTimeoutError(f"{self.address} takes no data for {round(timeout_s, 2):g} s"))

    def _post(self, pieces: Sequence[Buffer]) -> None:
        if self._socket is None:
            raise NotSentError(f"the connection to {self.address} is closed")
        if self.security is not None or sum(map(len, pieces)) < _SCATTERED_BYTES_MIN:
            pieces = [b"".join(pieces)]
        self._unsent.extend([memoryview(piece) for piece in pieces if len(piece)])
        self.push()

    @property
    def has_unsent(self) -> bool:
        """Whether there are bytes that the socket has not accepted yet."""
        return bool(self._unsent)

    def push(self) -> None:
        """Sends as many of the unsent bytes as the socket accepts without waiting."""
        unsent = self._unsent
        try:
            while unsent and (open_socket := self._socket) is not None:
                if len(unsent) == 1 or self.security is not None:
                    _skip(unsent, open_socket.send(unsent[0]))
                else:
                    _skip(unsent, open_socket.sendmsg(islice(unsent, _PIECES_MAX)))
        except BlockingIOError:
            return
        except OSError as error:
            if not wants_more(error):
                raise self._broken(NotSentError(str(lost(self.address, error)))) from None
        except BaseException:
            self.close()
            raise

    def _read_frame(self, timeout_s: float) -> memoryview:
        deadline = time.monotonic() + timeout_s
        while True:
            if (self._socket is None or self._has_received() or self._wait(deadline)) and (frame := self._take_frame()) is not None:
                return frame
            if self._socket is not None and time.monotonic() >= deadline:
                raise self._broken(RequestTimeoutError(f"{self.address} did not answer within {round(timeout_s, 2):g} s"))

    def _wait(self, deadline: float, *, is_for_writing: bool = False) -> bool:
        """Waits until the socket can be read, or accepts data. Returns False at the deadline, and after `_WAIT_S`."""
        open_socket = self._socket
        if open_socket is None or open_socket.fileno() < 0:
            raise ConnectError(f"the connection to {self.address} is closed")
        descriptors = [open_socket.fileno()]
        left = max(0.0, min(_WAIT_S, deadline - time.monotonic()))
        try:
            return bool(ready((), descriptors, left) if is_for_writing else readable(descriptors, left))
        except BaseException:
            self.close()
            raise

    def _take_frame(self) -> memoryview | None:
        """Reads without waiting. Returns the next frame, or None if it has not arrived completely."""
        frames = self.protocol.frames
        try:
            while (open_socket := self._socket) is not None:
                frame = frames.next_frame()
                if frame is not None:
                    return frame
                count = open_socket.recv_into(frames.get_buffer())
                if not count:
                    raise self._broken(self.protocol.hung_up())
                frames.buffer_updated(count)
        except BlockingIOError:
            return None
        except OSError as error:
            if wants_more(error):
                return None
            raise self._broken(lost(self.address, error)) from None
        except WireError as error:
            raise self._broken(self.protocol.malformed(error, self.protocol.pending[0] if self.protocol.pending else None)) from None
        except BaseException:
            self.close()
            raise
        raise ConnectError(f"the connection to {self.address} is closed")

    def _broken(self, error: TransportError) -> TransportError:
        """Closes the connection, because the following bytes cannot be interpreted. Returns `error`."""
        self.close()
        return error


def _skip(pieces: deque[memoryview], count: int) -> None:
    while pieces and count >= len(pieces[0]):
        count -= len(pieces.popleft())
    if count:
        pieces[0] = pieces[0][count:]


class Source(Protocol):
    """A connection or background call that `first_ready` can wait for."""

    @property
    def has_unsent(self) -> bool: ...

    def has_input(self) -> bool: ...

    def fileno(self) -> int: ...


def first_ready(sources: Mapping[K, Source], timeout_s: float) -> set[K]:
    """Waits until at least one source is ready: a connection has input, is closed or accepts unsent bytes, or a `BackgroundCall` has
    ended. Returns the keys of all ready sources, an empty set after `timeout_s`."""
    if not sources:
        if timeout_s > 0:  # a sleep of 0 s yields the processor, which takes 1 ms on a busy machine
            time.sleep(timeout_s)
        return set()
    found = {key for key, source in sources.items() if source.has_input()}
    others = {source.fileno(): key for key, source in sources.items() if key not in found}
    sending = {descriptor for descriptor, key in others.items() if sources[key].has_unsent}
    return found | {others[descriptor] for descriptor in ready(others.keys() - sending, sending, 0.0 if found else timeout_s)}
