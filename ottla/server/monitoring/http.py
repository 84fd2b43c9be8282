"""A small HTTP server for probes, scrapes and the last lines of the log: `ottla.metrics.listen`.

It answers GET and HEAD of a few paths and refuses everything else. No client can slow the broker down through this port: the head of a
request has limits of size and time, the number of connections is limited, and a peer that does not read is dropped. Concurrent scrapes
share a page. When all connections are taken, a new connection replaces the connection that has waited longest without a request. If all
have a request, it replaces the one with the oldest request, so a health probe is always served. No answer contains a traceback, and no
request changes anything.

`/healthz`, `/readyz` and `/startupz` need no password, because a kubelet has none (`ottla.metrics.probes.open`); the reasons why a broker
is not ready are shown only to clients that may read metrics. Without a password or token the broker refuses to open an address that is not
loopback. `http_access.py` decides who may read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from http import HTTPStatus
from typing import NamedTuple, Protocol

from ottla.base.ports import AddressError
from ottla.base.settings.listeners import host_and_port
from ottla.server.logging_setup import last_lines
from ottla.server.monitoring.health import Health
from ottla.server.monitoring.http_access import HttpAccess, is_loopback
from ottla.server.monitoring.http_listener import HttpListener, streams
from ottla.server.monitoring.metric_page import CONTENT_TYPE

log = logging.getLogger("ottla.http")

HEAD_BYTES_MAX = 8192
HEAD_SECONDS_MAX = 10.0
IDLE_SECONDS_MAX = 75.0
SEND_SECONDS_MAX = 10.0
CONNECTIONS_MAX = 64
SCRAPES_MAX = 4
"""If more connections than this wait for a page or are being sent one, a new scrape gets the last page, because a page with thousands of
partitions has megabytes."""
PIECE_BYTES = 1 << 16
PORT_MAX = 65535

ALIASES = {"/-/healthy": "/healthz", "/-/ready": "/readyz", "/v1/status/ready": "/readyz"}
ONCE = ("content-length", "host", "transfer-encoding", "authorization")
"""Headers that must not be repeated, because a proxy could use another one of the values."""
PATHS = ("/metrics", "/log", "/healthz", "/readyz", "/startupz")
PROBES = PATHS[2:]

is_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
is_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
"""Matches a value without control characters, which a proxy could take for the end of a line."""
is_authority = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\s]+)(:[0-9]*)?").fullmatch


class HttpRequest(NamedTuple):
    """The used parts of a request."""

    method: str
    path: str
    headers: dict[str, str]
    is_kept_alive: bool


class HttpAnswer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: str = ""


class BadRequest(Exception):
    """A request that is refused with a status: it is not HTTP, exceeds a limit or names another host."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class MetricSource(Protocol):
    """Makes the page of `/metrics`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    async def make(self) -> bytes: ...


class HttpPort:
    """The HTTP port of a broker, or of a service of several."""

    def __init__(self, metrics: MetricSource, health: Health, *, listen: str, access: HttpAccess) -> None:
        """Raises `AddressError` if `listen` is not an address, or is not loopback and everyone could read the metrics."""
        self.host, self.port = parse_address(listen)
        self._metrics = metrics
        self._health = health
        self._access = access
        self._listener = HttpListener(self._accepted)
        self._tasks: set[asyncio.Task[None]] = set()
        self._scraping: set[asyncio.Task[None] | None] = set()
        """Connections that wait for a page of metrics, or have not taken theirs."""
        self._making: asyncio.Task[bytes] | None = None
        self._page: bytes | None = None
        """The last page, while it is being sent."""
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Connections that have sent no whole request since their last answer. The one that has waited longest is first."""
        self._answering: dict[asyncio.Task[None], None] = {}
        """Connections with a request. The oldest request is first."""
        if access.is_open_to_all and not is_loopback(self.host):
            raise AddressError(
                f"ottla.metrics.listen={listen} is not loopback and needs a password: set ottla.metrics.credentials=user:password, or"
                " ottla.metrics.token.file"
            )

    async def start(self) -> None:
        try:
            await self._listener.open(self.host, self.port)
        except OSError as error:
            reason = error.strerror or str(error)
            address = host_and_port(self.host, self.port)
            raise AddressError(f"cannot listen on ottla.metrics.listen={address}: {reason}; choose another port") from error
        self.port = self._listener.port
        self._metrics.start()
        log.info("metrics and health on %s", self.url)
        if not self._access.is_encrypted and not is_loopback(self.host):
            log.warning("%s is not encrypted: passwords and tokens can be read on the way; set ottla.metrics.ssl.certificate", self.url)

    def reload(self) -> None:
        """Reads token and certificate again. Open connections keep the certificate; their next requests need the new token."""
        try:
            self._access.read_files()
        except AddressError as error:
            log.error("token and certificate of the HTTP port stay as they are: %s", error)

    @property
    def url(self) -> str:
        """Returns the URL for a browser. The host `*` means every address."""
        return f"http{'s' if self._access.is_encrypted else ''}://{f'[{self.host}]' if ':' in self.host else self.host or '*'}:{self.port}"

    @property
    def is_open_to_all(self) -> bool:
        """Whether clients need no password and no token."""
        return self._access.is_open_to_all

    async def stop(self) -> None:
        self._metrics.stop()
        await self._listener.close()
        if self._making is not None:
            self._making.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Connections

    async def _accepted(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            self._drop_longest()
        self._tasks.add(task)
        self._waiting[task] = None
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await streams(sock, self._access.tls, limit=HEAD_BYTES_MAX, handshake_seconds=HEAD_SECONDS_MAX)
            await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # No answer can be sent: the peer has disconnected or is too slow, or the port or `_drop_longest` closes the connection.
        finally:
            self._tasks.discard(task)
            self._waiting.pop(task, None)
            self._answering.pop(task, None)
            self._end_scrape()
            _close(sock, writer)

    def _drop_longest(self) -> None:
        """Closes the connection that has waited longest for a request. If all have one, closes the connection with the oldest request."""
        longest = next(iter(self._waiting or self._answering))
        self._waiting.pop(longest, None)
        self._answering.pop(longest, None)
        self._tasks.discard(longest)
        longest.cancel()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience = HEAD_SECONDS_MAX
        is_kept_alive = True
        while is_kept_alive:
            try:
                request = parse_head(await self._read_head(reader, patience))
                self._check_host(request)
                is_kept_alive = request.is_kept_alive
                answer = await self._answer(request)
                is_head = request.method == "HEAD"
            except BadRequest as error:
                is_kept_alive = is_head = False
                answer = HttpAnswer(error.status, as_json({"error": error.status.phrase}))
            await asyncio.wait_for(send(writer, answer, is_head=is_head, is_kept_alive=is_kept_alive), SEND_SECONDS_MAX)
            self._end_scrape()
            patience = IDLE_SECONDS_MAX
        # An immediate close could reset the connection before the peer has read the answer.
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()
        await asyncio.wait_for(reader.read(HEAD_BYTES_MAX), 1.0)

    def _check_host(self, request: HttpRequest) -> None:
        host = request.headers.get("host")
        if host is not None and not self._access.is_host(host_name(host), self.host):
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST)

    async def _read_head(self, reader: asyncio.StreamReader, patience: float) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        self._answering.pop(task, None)
        self._waiting[task] = None
        try:
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
        except asyncio.LimitOverrunError as error:
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
        finally:
            if task in self._waiting:  # it was not dropped
                del self._waiting[task]
                self._answering[task] = None

    # Answers

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        path = ALIASES.get(request.path, request.path)
        if path not in PATHS:
            return HttpAnswer(HTTPStatus.NOT_FOUND, as_json({"error": "Not Found", "paths": list(PATHS)}))
        if request.method not in ("GET", "HEAD"):
            return HttpAnswer(HTTPStatus.METHOD_NOT_ALLOWED, as_json({"error": "Method Not Allowed"}), headers="Allow: GET, HEAD\r\n")
        is_trusted = self._access.is_trusted(request.headers.get("authorization", ""))
        if not is_trusted and (path not in PROBES or not self._access.has_open_probes):
            return HttpAnswer(HTTPStatus.UNAUTHORIZED, as_json({"error": "Unauthorized"}), headers=self._access.challenge())
        if path == "/healthz":
            return HttpAnswer(HTTPStatus.OK, as_json({"status": "alive"}))
        if path == "/startupz":
            return verdict(self._health.has_started(), "started", "starting", {})
        if path == "/readyz":
            reasons = self._health.reasons()
            return verdict(not reasons, "ready", "not ready", reasons if is_trusted else {})
        if path == "/log":
            return HttpAnswer(HTTPStatus.OK, last_lines().encode("utf-8", "replace"), "text/plain; charset=utf-8")
        self._scraping.add(asyncio.current_task())
        return HttpAnswer(HTTPStatus.OK, await self._scrape(), CONTENT_TYPE)

    def _end_scrape(self) -> None:
        """Notes that this connection has received its page, or has ended."""
        self._scraping.discard(asyncio.current_task())
        if not self._scraping:
            self._page = None

    async def _scrape(self) -> bytes:
        """Returns the page that is being made, or makes one. If many connections are being sent a page, returns the last page, so that few
        pages are in memory."""
        if self._making is None:
            if self._page is not None and len(self._scraping) > SCRAPES_MAX:
                return self._page
            self._making = asyncio.get_running_loop().create_task(self._make_page())
        return await asyncio.shield(self._making)

    async def _make_page(self) -> bytes:
        try:
            self._page = await self._metrics.make()
            return self._page
        finally:
            self._making = None


def _close(sock: socket.socket, writer: asyncio.StreamWriter | None) -> None:
    if writer is None:  # there was no handshake
        sock.close()
    elif writer.transport.get_write_buffer_size():
        writer.transport.abort()
    else:
        writer.close()


def parse_address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.strip().removeprefix("http://").rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise AddressError(f"ottla.metrics.listen={listen} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def host_name(host: str) -> str:
    """Returns the name or address in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def parse_head(head: bytes) -> HttpRequest:
    """Parses the head of a request. Raises `BadRequest` for anything but HTTP/1 without a body."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not is_token(words[0]) or not words[1].startswith("/") or not is_value(words[1]):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not is_token(name) or not is_value(value):
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        name = name.lower()
        if name in ONCE and name in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        headers[name] = value.strip(" \t")
    if not is_authority(headers.get("host", "-" if words[2] == "HTTP/1.0" else "")):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    wish = headers.get("connection", "").lower()
    is_kept_alive = wish != "close" if words[2] == "HTTP/1.1" else wish == "keep-alive"
    return HttpRequest(words[0], words[1].partition("?")[0], headers, is_kept_alive)


async def send(writer: asyncio.StreamWriter, answer: HttpAnswer, *, is_head: bool, is_kept_alive: bool) -> None:
    """Sends an answer piece by piece, so that little of it is buffered for a peer that does not read."""
    body = memoryview(b"" if is_head else answer.body)
    pieces: list[bytes | memoryview] = [encode_head(answer, is_kept_alive=is_kept_alive)]
    pieces += (body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))
    for piece in pieces:
        if writer.is_closing():
            raise ConnectionResetError  # uvloop would raise RuntimeError
        writer.write(piece)
        await writer.drain()


def encode_head(answer: HttpAnswer, *, is_kept_alive: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\n{answer.headers}"
        f"Connection: {'keep-alive' if is_kept_alive else 'close'}\r\n\r\n"
    )
    return head.encode("latin-1")


def verdict(is_good: bool, good: str, bad: str, reasons: dict[str, str]) -> HttpAnswer:
    """Returns the answer to a probe: 200 or 503, and the reasons."""
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    said: dict[str, object] = {"status": good if is_good else bad}
    return HttpAnswer(status, as_json({**said, "reasons": reasons} if reasons else said))


def as_json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"
