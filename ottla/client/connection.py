"""One connection to one broker, on a blocking socket with timeouts.

`open` connects and asks ApiVersions; from then on a request travels in the newest version that both sides know (and that `CEILINGS`
allows). `send` and `receive` are apart, so that several requests can be under way: a broker answers one connection in order. `request` is
both at once.

Whatever fails (refused, reset, slow, nonsense) closes the connection and raises one `ClientError` whose line names the host. A closed
connection stays closed; `Cluster` opens a new one. Framing and codecs come from `wire`, so nothing here but `_read` and `_write` knows
that the socket blocks.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.errors import ApiError, ErrorCode, OttlaError, WireError
from ottla.client.addresses import Address
from ottla.client.errors import ClientError, ConnectError, NonsenseError, RequestTimeoutError
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import API_NAMES, API_VERSION_RANGES, load, read_response_header, write_request
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.client.security import Security

CLIENT_SOFTWARE = "ottla"
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""What an answer may announce before it counts as nonsense."""

HANDSHAKE_VERSION = 3
"""Understood by every broker since 2.4; a newer one would cost brokers of today a second question."""

CEILINGS = {0: 11, 1: 12, 8: 9, 9: 9, 24: 3, 26: 4, 28: 4}
"""Newer versions of these name topics by id or speak the second transaction protocol, which this client has no use for."""

_INT32 = struct.Struct(">i")
_SOCKET_BUFFER_BYTES = 1024 * 1024


class _Pending(NamedTuple):
    """A request under way."""

    correlation_id: int
    api_key: int
    version: int
    decode: Callable[[Any, int], tuple[Any, int]]


class Connection:
    """See the module. Not for use by two threads at once."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = CLIENT_SOFTWARE,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.connect_timeout_s = connect_timeout_s
        self.request_timeout_s = request_timeout_s
        self.security = security
        self.api_versions = ApiVersionsResponse()
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket | None = None
        self._pending: deque[_Pending] = deque()
        self._correlation_id = 0

    # Opening and closing

    def open(self) -> Connection:
        """Connects, asks which versions the broker speaks, and authenticates where that is configured."""
        try:
            self._socket = socket.create_connection(self.address, timeout=self.connect_timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
            if self.security is not None:
                self._socket = self.security.wrap(self._socket, self.address.host)
        except TimeoutError:
            self.close()
            raise ConnectError(
                f"cannot reach {self.address}: no answer within {self.connect_timeout_s:g} s; is the address right, is a firewall between?"
            ) from None
        except OSError as error:
            self.close()
            if self.security is not None and type(error).__module__ == "ssl":
                reason = getattr(error, "reason", None) or error
                raise ConnectError(f"no TLS with {self.address}: {reason}; check security.protocol and the certificates") from None
            raise ConnectError(f"cannot reach {self.address}: {(error.strerror or str(error)).lower()}") from None
        try:
            self._handshake()
            if self.security is not None:
                self.security.authenticate(self)
        except (OttlaError, KeyboardInterrupt):
            self.close()
            raise
        return self

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._pending.clear()

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def in_flight(self) -> int:
        """How many answers are still to come."""
        return len(self._pending)

    def _handshake(self) -> None:
        self._versions = {18: (0, HANDSHAKE_VERSION)}
        answer = self._ask_versions(HANDSHAKE_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._ask_versions(0)
        if answer.error_code:
            raise self._broken(NonsenseError(f"{self.address} refused to say which versions it speaks (error {answer.error_code})"))
        self.api_versions = answer
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        from ottla._version import __version__

        body = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE, client_software_version=__version__)
        try:
            self.send(body, version=version)
            return self._receive_versions()
        except ConnectError as error:
            # The first words were met by a closed door: most often TLS on one side only, or no broker at all.
            raise ConnectError(f"{error}; it may not be a Kafka broker, or it may want TLS (security.protocol=SSL)") from None

    def _receive_versions(self) -> ApiVersionsResponse:
        """A broker that lacks the version asked for answers in the form of version 0 (KIP-511)."""
        pending = self._pending.popleft()
        frame = self._read_frame(self.request_timeout_s)
        try:
            if _INT32.unpack_from(frame, 0)[0] != pending.correlation_id:
                raise WireError("an answer to something else")
            version = 0 if bytes(frame[4:6]) == b"\0\x23" else pending.version
            return decoder(ApiVersionsResponse, version)(frame, 4)[0]
        except (WireError, struct.error) as error:
            raise self._broken(self._nonsense(error)) from None

    # Versions

    def version_of(self, key: int) -> int:
        """The version in which a request of this key travels here. ApiError when the broker has none that we know."""
        ours = API_VERSION_RANGES[key]
        theirs = self._versions.get(key)
        if theirs is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.address} does not offer {API_NAMES[key]}")
        version = min(CEILINGS.get(key, ours[1]), theirs[1])
        if version < max(ours[0], theirs[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} speaks {API_NAMES[key]} {theirs[0]} to {theirs[1]}, this client {ours[0]} to {ours[1]}",
            )
        return version

    def offers(self, key: int, version: int = 0) -> bool:
        """Whether the broker serves an API, at least in this version."""
        theirs = self._versions.get(key)
        return theirs is not None and theirs[1] >= version

    # Asking

    def request(self, body: Request, *, timeout_s: float | None = None, version: int | None = None) -> Any:
        """Sends and waits for the answer, an instance of the API's response class."""
        self.send(body, version=version)
        return self.receive(timeout_s)

    def send(self, body: Request, *, version: int | None = None, is_answered: bool = True) -> None:
        """Sends a request without waiting; answers come by `receive` in the order of sending."""
        cls = type(body)
        key = cls.API_KEY
        if version is None:
            version = self.version_of(key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = write_request(key, version, self._correlation_id, self.client_id, encoder(cls, version)(body))
        if is_answered:
            self._pending.append(_Pending(self._correlation_id, key, version, decoder(load(key)[1], version)))
        self._write(frame)

    def receive(self, timeout_s: float | None = None) -> Any:
        """The answer to the oldest request under way."""
        assert self._pending, "nothing was asked"
        pending = self._pending.popleft()
        frame = self._read_frame(self.request_timeout_s if timeout_s is None else timeout_s)
        try:
            correlation_id, start = read_response_header(pending.api_key, pending.version, frame)
            if correlation_id != pending.correlation_id:
                raise WireError(f"an answer to request {correlation_id} instead of {pending.correlation_id}")
            return pending.decode(frame, start)[0]
        except WireError as error:
            raise self._broken(self._nonsense(error, pending)) from None

    def is_readable(self, timeout_s: float = 0.0) -> bool:
        """Whether an answer, or the end of the connection, has begun to arrive."""
        if self._socket is None:
            return True
        pending = getattr(self._socket, "pending", None)  # what TLS has decrypted already; a plain socket keeps nothing back
        if pending is not None and pending():
            return True
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    # Bytes

    def fileno(self) -> int:
        assert self._socket is not None, "the connection is closed"
        return self._socket.fileno()

    def exchange_raw(self, data: bytes, timeout_s: float) -> memoryview:
        """Sends one length-prefixed token and reads one: SASL as it was before its requests had a frame of their own."""
        self._write(_INT32.pack(len(data)) + data)
        return self._read_frame(timeout_s)

    def _write(self, frame: bytes) -> None:
        if self._socket is None:
            raise ConnectError(f"the connection to {self.address} is closed")
        try:
            self._socket.settimeout(self.request_timeout_s)
            self._socket.sendall(frame)
        except TimeoutError:
            raise self._broken(RequestTimeoutError(f"{self.address} takes no data for {self.request_timeout_s:g} s")) from None
        except OSError as error:
            raise self._broken(ConnectError(f"lost {self.address}: {(error.strerror or str(error)).lower()}")) from None

    def _read_frame(self, timeout_s: float) -> memoryview:
        deadline = time.monotonic() + timeout_s
        (size,) = _INT32.unpack(self._read(4, deadline, timeout_s))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise self._broken(self._nonsense(WireError(f"a frame of {size} bytes")))
        return self._read(size, deadline, timeout_s)

    def _read(self, size: int, deadline: float, timeout_s: float) -> memoryview:
        if self._socket is None:
            raise ConnectError(f"the connection to {self.address} is closed")
        view = memoryview(bytearray(size))
        have = 0
        try:
            while have < size:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                count = self._socket.recv_into(view[have:])
                if not count:
                    raise self._broken(ConnectError(f"{self.address} closed the connection"))
                have += count
        except TimeoutError:
            raise self._broken(RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s")) from None
        except OSError as error:
            raise self._broken(ConnectError(f"lost {self.address}: {(error.strerror or str(error)).lower()}")) from None
        return view

    # Failing

    def _nonsense(self, error: Exception, pending: _Pending | None = None) -> NonsenseError:
        what = f" to {API_NAMES[pending.api_key]} {pending.version}" if pending else ""
        return NonsenseError(f"{self.address} does not answer{what} like a Kafka broker ({error}); is that the right port?")

    def _broken(self, error: ClientError) -> ClientError:
        """Closes the connection, since nobody knows any more what the next byte means."""
        self.close()
        return error
