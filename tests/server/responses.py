"""What a connection has sent, decoded by what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.wire.codec import decoder
from ottla.wire.framing import load, read_response_header


def responses(data: bytes, asked: Sequence[tuple[int, int]]) -> list[Any]:
    """The answers in order, as far as they are there. `asked`: key and version of each request; their correlation ids count from 1."""
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
