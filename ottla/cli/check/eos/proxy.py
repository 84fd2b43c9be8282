"""A TCP proxy in front of every broker of a cluster: it reads requests and answers (frames), and a rule may change a frame or close the
connection.

The proxy replaces the addresses in Metadata, FindCoordinator and DescribeCluster answers, so a client that starts from `Proxy.address`
reaches all brokers through it. It does not replace the address of a new leader in Produce and Fetch answers (KIP-951). It starts a listener
for an address when it first sees the address. Each connection has two threads, one for each direction. It cannot decrypt TLS.

Invariants: frames of one direction keep their order; when a connection is cut, both sides are closed after all earlier frames were sent.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import OttlaError
from ottla.client.addresses import Address
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header

METADATA = 3
FIND_COORDINATOR = 10
DESCRIBE_CLUSTER = 60

CONNECT_SECONDS = 10
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")


class Rule:
    """Passes all frames unchanged. Frames are given without their size field."""

    def request(self, key: int, version: int, frame: bytes) -> bytes:
        """Returns the frame to send to the broker."""
        return frame

    def response(self, key: int, version: int, frame: bytes) -> bytes | None:
        """Returns the frame to send to the client; None cuts the connection."""
        return frame


class CutAnswers(Rule):
    """Drops every nth answer to one API and cuts the connection. The client must then repeat a request that the broker has already
    executed.
    """

    def __init__(self, key: int, every: int) -> None:
        self.key = key
        self.every = every
        self.cuts = 0
        self._seen = 0

    def response(self, key: int, version: int, frame: bytes) -> bytes | None:
        if key != self.key:
            return frame
        self._seen += 1
        if self._seen % self.every:
            return frame
        self.cuts += 1
        return None


class Proxy:
    """See the module. `with Proxy(bootstrap, rule) as proxy: ... proxy.address`."""

    def __init__(self, bootstrap: Sequence[Address], rule: Rule) -> None:
        self._rule = rule
        self._lock = threading.Lock()
        self._listeners: dict[Address, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self.address = ",".join(str(self._front_of(address)) for address in bootstrap)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for one in (*self._listeners.values(), *self._open):
                _shut(one)

    def _front_of(self, broker: Address) -> Address:
        with self._lock:
            listener = self._listeners.get(broker)
            if listener is None:
                listener = self._listeners[broker] = socket.create_server(("127.0.0.1", 0))
                threading.Thread(target=self._accept, args=(listener, broker), daemon=True).start()
        return Address("127.0.0.1", listener.getsockname()[1])

    def _accept(self, listener: socket.socket, broker: Address) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(broker, timeout=CONNECT_SECONDS)
            except OSError:
                client.close()
                continue
            upstream.settimeout(None)
            for one in (client, upstream):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                if self._is_closed:
                    _shut(client)
                    _shut(upstream)
                    return
                self._open.update((client, upstream))
            asked: dict[int, tuple[int, int]] = {}
            for pump, source, target in ((self._upward, client, upstream), (self._downward, upstream, client)):
                threading.Thread(target=self._run, args=(pump, source, target, asked), daemon=True).start()

    def _run(self, pump: Any, source: socket.socket, target: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        # A closed side, or a malformed answer, ends the connection, whichever of the two threads notices it first.
        with contextlib.suppress(OSError, OttlaError):
            pump(source, target, asked)
        for one in (source, target):
            _shut(one)
        with self._lock:
            self._open.difference_update((source, target))

    def _upward(self, source: socket.socket, target: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        while (frame := read_frame(source)) is not None:
            key, version, correlation_id = _REQUEST.unpack_from(frame)
            asked[correlation_id] = key, version
            changed = self._rule.request(key, version, frame)
            target.sendall(_SIZE.pack(len(changed)) + changed)

    def _downward(self, source: socket.socket, target: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        while (frame := read_frame(source)) is not None:
            key, version = asked.pop(_CORRELATION.unpack_from(frame)[0], (-1, 0))
            if key in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
                frame = self._with_our_addresses(key, version, frame)
            changed = self._rule.response(key, version, frame)
            if changed is None:
                return
            target.sendall(_SIZE.pack(len(changed)) + changed)

    def _with_our_addresses(self, key: int, version: int, frame: bytes) -> bytes:
        _, start = read_response_header(key, version, frame)
        response: Any
        response, _ = decoder(load(key)[1], version)(frame, start)
        named = [response, *response.coordinators] if key == FIND_COORDINATOR else response.brokers
        for broker in named:
            if broker.port > 0:
                broker.host, broker.port = self._front_of(Address(broker.host, broker.port))
        return frame[:start] + encoder(load(key)[1], version)(response)


def read_frame(source: socket.socket) -> bytes | None:
    """Returns the next frame without its size field; None at the end of the connection."""
    size = _exactly(source, _SIZE.size)
    return None if size is None else _exactly(source, _SIZE.unpack(size)[0])


def _exactly(source: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
