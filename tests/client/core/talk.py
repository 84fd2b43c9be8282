"""The broker's half of a conversation as bytes: reads the frames that a client protocol gives, and answers from a script."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.client.core.connection import ConnectionProtocol
from ottla.wire.apis import API_VERSION_RANGES
from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_request_header, write_response
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

API_VERSIONS = 18

Answer = Callable[[Any, int], Any]


def versions_answer(ranges: Mapping[int, tuple[int, int]] | None = None, **fields: Any) -> ApiVersionsResponse:
    """An answer to ApiVersions that offers everything, or these ranges."""
    offered = {**API_VERSION_RANGES, **(ranges or {})}
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(offered.items())]
    return ApiVersionsResponse(api_keys=keys, **fields)


class ScriptedPeer:
    """Answers requests by key; an answer may be bytes, sent as they are. `requests` are (key, version, body)."""

    def __init__(self, script: Mapping[int, Answer] | None = None) -> None:
        self.script: dict[int, Answer] = {API_VERSIONS: lambda _body, _version: versions_answer(), **(script or {})}
        self.requests: list[tuple[int, int, Any]] = []

    def answer(self, data: bytes) -> bytes:
        """The bytes that answer the requests in `data`, which are whole."""
        return b"".join(self._answers(memoryview(data)))

    def _answers(self, rest: memoryview) -> Iterator[bytes]:
        while len(rest):
            (size,) = struct.unpack_from(">i", rest)
            frame, rest = rest[4 : 4 + size], rest[4 + size :]
            key, version, correlation_id, _, start = read_request_header(frame)
            request, response = load(key)
            body, _ = decoder(request, version)(frame, start)
            self.requests.append((key, version, body))
            found = self.script[key](body, version)
            if found is not None:
                yield found if isinstance(found, bytes) else bytes(write_response(response, version)(found, correlation_id))


def open_protocol(protocol: ConnectionProtocol, peer: ScriptedPeer, step: int = 1 << 30) -> None:
    """Runs the opening against a peer whose bytes come `step` at a time."""
    data = protocol.start()
    while not protocol.is_ready:
        answer, data = peer.answer(data), b""
        for at in range(0, len(answer), step):
            for frame in protocol.frames.feed(answer[at : at + step]):
                data = protocol.advance(frame)
