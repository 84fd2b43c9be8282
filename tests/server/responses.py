"""Decodes the responses that a connection has sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_response_header


def responses(data: bytes, asked: Sequence[tuple[int, int]]) -> list[Any]:
    """Returns the complete responses in order. `asked` has the key and version of each request; their correlation ids are 1, 2 and so
    on."""
    found = []
    for number, (key, version) in enumerate(asked, 1):
        if not data:
            break
        size = int.from_bytes(data[:4], "big")
        correlation_id, at = read_response_header(key, version, data, 4)
        assert correlation_id == number
        found.append(decoder(load(key)[1], version)(memoryview(data)[: 4 + size], at)[0])
        data = data[4 + size :]
    return found
