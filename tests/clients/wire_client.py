"""A client for tests, from Ottla's codec and a blocking socket: it sends exactly the request and the version that a test gives it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any

from ottla.wire.apis import EXTENSIONS_SINCE
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header, write_request
from ottla.wire.messages.api_versions import EXTENSIONS_VERSION, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Request, Response, Struct

TIMEOUT_SECONDS = 60


class WireClient:
    """One connection; `ask` sends one request and decodes its answer."""

    def __init__(self, port: int, *, timeout: float = TIMEOUT_SECONDS, client_id: str | None = "wire") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = client_id
        self.correlation_id = 0
        self.has_extensions = False

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, request: Request, version: int) -> bytes:
        """Returns the whole frame, with the next correlation id."""
        self.correlation_id += 1
        body = encoder(type(request), version)(request)
        return write_request(type(request).API_KEY, version, self.correlation_id, self.client_id, body)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, request: Request, version: int) -> Any:
        """Sends a request and returns the answer. Before the first request of an Ottla API it asks for the extensions."""
        if type(request).API_KEY >= EXTENSIONS_SINCE and not self.has_extensions:
            self.ask_for_extensions()
        self.send(self.frame(request, version))
        return self.answer(type(request).API_KEY, version)

    def ask_for_extensions(self) -> ApiVersionsResponse:
        """Asks for Ottla's own APIs on this connection."""
        self.has_extensions = True
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1", ottla_extensions=EXTENSIONS_VERSION)
        answer: ApiVersionsResponse = self.ask(request, 3)
        return answer

    def answer(self, key: int, version: int) -> Any:
        """Returns the next answer, which must belong to the last request and have no bytes after its end."""
        data = self.receive()
        assert data is not None, "the broker closed the connection"
        correlation_id, at = read_response_header(key, version, data)
        assert correlation_id == self.correlation_id
        response, end = decoder(load(key)[1], version)(data, at)
        assert end == len(data), f"{len(data) - end} bytes behind the answer"
        assert isinstance(response, Response)
        return response

    def receive(self) -> bytes | None:
        """Returns the next frame without its size, or None if the connection is closed before its end."""
        size = self._exactly(4)
        if size is None:
            return None
        return self._exactly(struct.unpack(">i", size)[0])

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)


class In:
    """Builds messages for one version; omits fields that the version lacks. `In(3)(MetadataRequest, topics=[...])`."""

    def __init__(self, version: int) -> None:
        self.version = version

    def __call__(self, cls: type[Struct], **fields: Any) -> Any:
        known = {field.name: field for field in cls.__fields__}
        return cls(**{name: value for name, value in fields.items() if known[name].is_in(self.version)})


def error_codes(message: object) -> list[int]:
    """Returns all error codes in an answer, at any depth."""
    return list(_error_codes(message))


def _error_codes(value: object) -> Iterable[int]:
    if isinstance(value, Struct):
        for field in value.__fields__:
            inner = getattr(value, field.name)
            if field.name == "error_code":
                yield inner
            else:
                yield from _error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _error_codes(inner)
