"""Injects faults between clients and a broker: a TCP proxy in the test's process that reads the requests and answers.

Clients connect to the proxy. `fail_next` answers a request, and the broker does not get the request (for Metadata, the proxy puts the error
into the broker's answer). `lose_answer` lets the broker execute a request, and closes the connection instead of answering.
`drop_connections` closes the clients' connections, `pause` delays all frames. The proxy replaces the addresses in the broker's answers by
its own addresses, so that clients continue to use the proxy. Each further broker gets a listening port when its address is first seen. This
works with any Kafka-compatible broker, and the faults of a test process affect no other process.

A connection has two threads, one for each direction. A client's pending requests and made-up answers are in one queue in the order of its
requests, because Kafka answers in order. Not supported: TLS, and the old SASL exchange without request headers.

Threads do not survive a fork: the clients of a forked child use the proxy of its parent, and only the parent can inject faults.
"""

from __future__ import annotations

import difflib
import os
import socket
import struct
import threading
from collections import deque
from typing import Any, BinaryIO, NamedTuple

from ottla.base.errors import ErrorCode, WireError
from ottla.testing import refusals
from ottla.wire.apis import API_NAMES, KEYS
from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_request_header, read_response_header, write_response

LOOPBACK = "127.0.0.1"
PRODUCE = 0
ALWAYS_WITH_ADDRESSES = frozenset(KEYS[name] for name in ("Metadata", "FindCoordinator", "DescribeCluster"))
NAMING_LEADERS = {PRODUCE: 10, KEYS["Fetch"]: 16, KEYS["ShareFetch"]: 0, KEYS["ShareAcknowledge"]: 0}
"""From these versions on, an answer of a broker that is not the leader has the new leader's address (KIP-951)."""
CONNECT_SECONDS_MAX = 5.0

Address = tuple[str, int]
_read_size = struct.Struct(">i").unpack
_read_key = struct.Struct(">h").unpack_from

_KEYS = {name.lower(): key for key, name in API_NAMES.items()}


class Fault(NamedTuple):
    """Makes the next request with this API key fail. `code` is the error of the answer; None closes the connection instead. The connection
    is closed before the broker gets the request or, with `is_carried_out`, after the broker has answered. `broker` limits the fault to one
    broker.
    """

    key: int
    code: int | None
    is_carried_out: bool = False
    broker: Address | None = None


class PendingAnswer(NamedTuple):
    """An answer that a client waits for: the broker's answer, possibly altered, or a made-up answer (`made_up`). `is_lost`: the connection
    is closed instead."""

    key: int = -1
    version: int = -1
    code: int | None = None
    made_up: bytes | None = None
    is_lost: bool = False


class FaultProxy:
    """A proxy for a broker, and for all brokers with addresses in its answers."""

    def __init__(self, broker: Address) -> None:
        self._listeners: dict[Address, socket.socket] = {}
        self._links: set[_Link] = set()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._owner_pid = os.getpid()
        self.may_pass = threading.Event()
        self.may_pass.set()
        self._is_stopped = False
        self.address = self.address_of(broker)

    def address_of(self, broker: Address) -> Address:
        key = (_plain(broker[0]), broker[1])
        with self._lock:
            listener = self._listeners.get(key)
            if listener is None:
                listener = self._listeners[key] = socket.create_server((LOOPBACK, 0))
                threading.Thread(target=self._accept, args=(listener, key), name="ottla-faults", daemon=True).start()
            return LOOPBACK, listener.getsockname()[1]

    # Called by tests

    def fail_next(self, api: str, error: ErrorCode | str | int | None, times: int = 1, broker: Address | None = None) -> None:
        """Makes the next `times` requests of an API (`"Produce"`) fail with an error (code or name). None closes the connection instead.
        `broker` limits the fault to one broker. Raises `ValueError` for an API whose answer has no field for an error.
        """
        self._check_process()
        key = key_of(api)
        if error is not None and not refusals.can_refuse(key):
            raise ValueError(f"an answer to {api} has no field for an error; use fail_next({api!r}, None) to close the connection instead")
        code = None if error is None else int(code_of(error))
        with self._lock:
            self._faults += [Fault(key, code, broker=broker)] * times

    def lose_answer(self, api: str, times: int = 1, broker: Address | None = None) -> None:
        """Lets the broker execute the next `times` requests of an API, and closes the connection when the broker has answered."""
        self._check_process()
        with self._lock:
            self._faults += [Fault(key_of(api), None, is_carried_out=True, broker=broker)] * times

    def drop_connections(self, broker: Address | None = None) -> int:
        """Closes all connections, or all connections to `broker`, like a network failure. Returns the number of closed connections."""
        self._check_process()
        return self._drop(broker)

    def _drop(self, broker: Address | None = None) -> int:
        with self._lock:
            links = [link for link in self._links if broker in (None, link.broker)]
        for link in links:
            link.close()
        return len(links)

    def pause(self) -> None:
        """Delays all frames until `resume`; connections stay open."""
        self._check_process()
        self.may_pass.clear()

    def resume(self) -> None:
        self.may_pass.set()

    def reset(self) -> None:
        """Removes the faults that have not been used, and ends a `pause`. Does nothing in a forked child."""
        if self._is_own:
            self.resume()
            with self._lock:
                self._faults.clear()

    def stop(self) -> None:
        """Closes all sockets. Does nothing in a forked child, because a shutdown of its copies would close the sockets of the parent."""
        if self._is_own:
            self._is_stopped = True
            self.resume()
            for listener in self._listeners.values():
                _close(listener)
            self._drop()

    @property
    def _is_own(self) -> bool:
        return self._owner_pid == os.getpid()

    def _check_process(self) -> None:
        if not self._is_own:
            raise RuntimeError("faults are injected by the process that has made the proxy, not by a forked child of it")

    # Called by links

    def take_fault(self, key: int, broker: Address) -> Fault | None:
        """Removes and returns the first fault for a request with this key to this broker; None if there is none."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.key == key and fault.broker in (None, broker):
                    self._faults.remove(fault)
                    return fault
        return None

    def forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _accept(self, listener: socket.socket, broker: Address) -> None:
        while not self._is_stopped:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(broker, timeout=CONNECT_SECONDS_MAX)
            except OSError:
                _close(client)  # the broker has ended, so its port here is closed as well
                continue
            upstream.settimeout(None)
            for sock in (client, upstream):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client, upstream, broker)
            with self._lock:
                self._links.add(link)
            link.start()


class _Link:
    """One client's connection and its connection to the broker."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, upstream: socket.socket, broker: Address) -> None:
        self.broker = broker
        self._proxy = proxy
        self._client = client
        self._upstream = upstream
        self._pending: deque[PendingAnswer] = deque()
        self._lock = threading.Lock()

    def start(self) -> None:
        for work in (self._carry_requests, self._carry_answers):
            threading.Thread(target=self._run, args=(work,), name="ottla-faults", daemon=True).start()

    def close(self) -> None:
        _close(self._client)
        _close(self._upstream)
        self._proxy.forget(self)

    def _run(self, work: Any) -> None:
        try:
            work()
        except (OSError, ValueError, WireError, struct.error):
            pass  # one side has closed, or does not speak Kafka: the other is closed too
        finally:
            self.close()

    def _carry_requests(self) -> None:
        with self._client.makefile("rb") as reader:
            while (frame := _read_frame(reader)) is not None:
                self._proxy.may_pass.wait()
                (key,) = _read_key(frame, 4)
                fault = self._proxy.take_fault(key, self.broker)
                if fault is not None and fault.code is None and not fault.is_carried_out:
                    return
                if not self._stand_in(frame, fault):
                    self._upstream.sendall(frame)

    def _stand_in(self, frame: bytes, fault: Fault | None) -> bool:
        """Queues the answer for a request; returns whether the request must not reach the broker."""
        key, version, correlation_id, _client_id, start = read_request_header(frame, 4)
        code = fault.code if fault is not None else None
        if code is not None and not refusals.is_altered(key):
            request_class, response_class = load(key)
            request: Any = decoder(request_class, version)(memoryview(frame), start)[0]
            if key == PRODUCE and request.acks == 0:
                return True  # acks=0 has no answer; the records are lost, as when a broker fails
            answer = bytes(write_response(response_class, version)(refusals.refuse(key, version, request, code), correlation_id))
            with self._lock:
                self._pending.append(PendingAnswer(made_up=answer))
                self._send_made_up()
            return True
        if key != PRODUCE or _wants_answer(frame, version, start):
            with self._lock:
                self._pending.append(PendingAnswer(key, version, code, is_lost=fault is not None and fault.is_carried_out))
        return False

    def _carry_answers(self) -> None:
        with self._upstream.makefile("rb") as reader:
            while (frame := _read_frame(reader)) is not None:
                self._proxy.may_pass.wait()
                with self._lock:
                    pending = self._pending.popleft()
                    if pending.is_lost:
                        return
                    if pending.key in ALWAYS_WITH_ADDRESSES or pending.code is not None or _may_name_leaders(pending):
                        frame = self._rewrite(frame, pending)
                    self._client.sendall(frame)
                    self._send_made_up()

    def _send_made_up(self) -> None:
        while self._pending and (answer := self._pending[0].made_up) is not None:
            self._pending.popleft()
            self._client.sendall(answer)

    def _rewrite(self, frame: bytes, pending: PendingAnswer) -> bytes:
        """Returns the broker's answer with the proxy's addresses, and with the requested error, if any."""
        response_class = load(pending.key)[1]
        correlation_id, start = read_response_header(pending.key, pending.version, frame, 4)
        answer = decoder(response_class, pending.version)(memoryview(frame), start)[0]
        if pending.code is not None:
            answer = refusals.alter(answer, pending.code)
        nodes = [node for node in _nodes_of(answer) if node.port > 0]
        if not nodes and pending.code is None:
            return frame
        for node in nodes:
            node.host, node.port = self._proxy.address_of((node.host, node.port))
        return bytes(write_response(response_class, pending.version)(answer, correlation_id))


def key_of(api: str) -> int:
    key = _KEYS.get(api.lower())
    if key is None:
        near = difflib.get_close_matches(api, API_NAMES.values(), 1)
        raise ValueError(f"no API is called {api!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return key


def code_of(error: ErrorCode | str | int) -> ErrorCode:
    if not isinstance(error, str):
        return ErrorCode(error)
    if error not in ErrorCode.__members__:
        near = difflib.get_close_matches(error, ErrorCode.__members__, 1)
        raise ValueError(f"no error is called {error!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return ErrorCode[error]


def _nodes_of(answer: Any) -> list[Any]:
    """Returns all structs in the answer with a host and a port."""
    nodes = [*getattr(answer, "brokers", ()), *getattr(answer, "coordinators", ()), *getattr(answer, "node_endpoints", ())]
    return [*nodes, answer] if hasattr(answer, "host") else nodes


def _may_name_leaders(pending: PendingAnswer) -> bool:
    since = NAMING_LEADERS.get(pending.key)
    return since is not None and since <= pending.version <= load(pending.key)[1].VERSIONS[1]


def _wants_answer(frame: bytes, version: int, start: int) -> bool:
    request: Any = decoder(load(PRODUCE)[0], version)(memoryview(frame), start)[0]
    return bool(request.acks)


def _read_frame(reader: BinaryIO) -> bytes | None:
    """Returns a whole frame with its leading size; None if the peer has closed the connection."""
    head = reader.read(4)
    if len(head) < 4:
        return None
    body = reader.read(_read_size(head)[0])
    return head + body if len(body) == _read_size(head)[0] else None


def _plain(host: str) -> str:
    return LOOPBACK if host == "localhost" else host


def _close(sock: socket.socket) -> None:
    """Shuts a socket down and closes it. A reading thread would not notice a close without a shutdown."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
