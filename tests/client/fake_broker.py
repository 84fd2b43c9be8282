"""A broker made of a script: for each key of the protocol a function from request to response, served by threads on a real socket.

What the script leaves out is not advertised. A function may answer with bytes (sent as they are), with None (silence), or raise `HangUp`.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from ottla.wire.apis import API_VERSION_RANGES
from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_request_header, write_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import ZERO_UUID

Answer = Callable[[Any, int], Any]


class HangUp(Exception):
    """The broker closes the connection instead of answering."""


class FakeBroker:
    """One broker, number 1, on a free port."""

    def __init__(self, script: Mapping[int, Answer], *, versions: Mapping[int, tuple[int, int]] | None = None) -> None:
        self.script = {18: self._api_versions, 3: self._metadata, **script}
        self.versions = {key: (versions or {}).get(key, API_VERSION_RANGES[key]) for key in self.script}
        self.topics: dict[str, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.requests: list[tuple[int, int, Any]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)  # no connection is accepted any more
        for connection in self._sockets:
            connection.close()

    def hang_up(self) -> None:
        """Closes all connections; new ones are accepted."""
        for connection in self._sockets:
            with suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)

    def asked(self, key: int) -> list[Any]:
        """The bodies of all requests of a key, in order."""
        return [body for found, _, body in self.requests if found == key]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", self._read(connection, 4))
                frame = memoryview(self._read(connection, size))
                key, version, correlation_id, _, start = read_request_header(frame)
                body, _ = decoder(load(key)[0], version)(frame, start)
                self.requests.append((key, version, body))
                answer = self.script[key](body, version)
                if answer is None:  # never answered: what comes next is the end of the connection, or another request
                    continue
                data = answer if isinstance(answer, bytes) else write_response(load(key)[1], version)(answer, correlation_id)
                connection.sendall(data)
        except (OSError, HangUp):
            connection.close()

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise HangUp
            data += part
        return data

    def _api_versions(self, _body: Any, _version: int) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(self.versions.items())]
        return ApiVersionsResponse(api_keys=keys)

    def _metadata(self, body: Any, _version: int) -> MetadataResponse:
        names = [topic.name for topic in body.topics] if body.topics is not None else sorted(self.topics)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="fake",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def coordinator(self, body: Any, version: int) -> FindCoordinatorResponse:
        """An answer to FindCoordinator, for scripts: this broker, for every key."""
        where: Any = {"node_id": 1, "host": "127.0.0.1", "port": self.port}
        if version < 4:
            return FindCoordinatorResponse(**where)
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, **where) for key in body.coordinator_keys])

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=3)
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1])
            for number in range(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids.get(name, ZERO_UUID), partitions=partitions)
