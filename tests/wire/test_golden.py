"""Recorded frames of real clients: the codec decodes each and encodes it again to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_request_header, read_response_header, write_request, write_response
from tests.golden import captures
from tests.golden.captures import CLIENTS, Frame

FILES = [path for client in CLIENTS for path in captures.files(client)]


def rewritten(frame: Frame) -> bytes:
    """Returns the frame, decoded and encoded again."""
    data = memoryview(frame.data)
    request, response = load(frame.key)
    if frame.is_request:
        key, version, correlation_id, client_id, at = read_request_header(data[4:])
        assert (key, version) == (frame.key, frame.version)
        body, end = decoder(request, version)(data[4:], at)
        assert end == len(data) - 4
        return write_request(key, version, correlation_id, client_id, encoder(request, version)(body))
    correlation_id, at = read_response_header(frame.key, frame.version, data[4:])
    answer, end = decoder(response, frame.version)(data[4:], at)
    assert end == len(data) - 4
    return bytes(write_response(response, frame.version)(answer, correlation_id))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.stem}" for path in FILES])
def test_frames_are_written_again_as_they_were(path: Path) -> None:
    for frame in captures.read(path):
        assert rewritten(frame).hex() == frame.data.hex(), frame.number


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_produced_fetched_and_joined_a_group(client: str) -> None:
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "EndTxn"} <= {path.stem for path in captures.files(client)}
