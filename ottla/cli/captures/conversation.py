"""Reads the frames of a packet capture: splits the bytes of each connection into requests and responses."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.cli.captures.pcap import Endpoint, Piece, clients_of, is_recording, read_pieces
from ottla.cli.inspect.frames import FRAME_BYTES_MAX, Frame, SeenFrame, explain_request, explain_response, looks_like_request
from ottla.wire.apis import APIS

__all__ = ["conversation", "is_recording"]


class _Side:
    """The received part of an incomplete frame, in one direction of a connection."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.is_nonsense = False


def conversation(data: bytes, port: int | None) -> Iterator[SeenFrame]:
    """Yields the frames of a capture in order. A response is matched with its request by connection and correlation id.

    With `port`, only connections of brokers that listen on it are read. Raises `WireError` for a damaged capture.
    """
    clients = clients_of(data)
    sides: dict[tuple[Endpoint, Endpoint], _Side] = {}
    asked: dict[tuple[Endpoint, Endpoint, int], tuple[int, int]] = {}
    first = None
    for piece in read_pieces(data):
        first = piece.seconds if first is None else first
        side = sides.setdefault((piece.source, piece.target), _Side())
        side.bytes += piece.data
        for raw in _whole_frames(side):
            frame = _frame_of(piece, raw, clients, port, asked)
            if frame is not None:
                yield SeenFrame(frame, f"{(piece.seconds - first) * 1000:.3f} ms  {piece.source} -> {piece.target}")


def _whole_frames(side: _Side) -> Iterator[bytes]:
    """Removes and yields the complete frames. After an impossible size the direction is ignored, because it is not Kafka's protocol."""
    while len(side.bytes) >= 4 and not side.is_nonsense:
        size = int.from_bytes(side.bytes[:4], "big", signed=True)
        if not 4 <= size <= FRAME_BYTES_MAX:
            side.is_nonsense = True
            return
        if len(side.bytes) < 4 + size:
            return
        raw = bytes(side.bytes[: 4 + size])
        del side.bytes[: 4 + size]
        yield raw


def _frame_of(
    piece: Piece, raw: bytes, clients: set[Endpoint], port: int | None, asked: dict[tuple[Endpoint, Endpoint, int], tuple[int, int]]
) -> Frame | None:
    """Explains a frame as a request or a response; returns None for a response without a captured request, or another port.

    `port` decides which side is the broker, else the captured SYN, else the first bytes of the frame.
    """
    correlation_id = int.from_bytes(raw[4:8], "big", signed=True)
    question = asked.pop((piece.target, piece.source, correlation_id), None)
    if port is not None:
        if port not in (piece.source.port, piece.target.port):
            return None
        is_request = piece.target.port == port
    elif piece.source in clients or piece.target in clients:
        is_request = piece.source in clients
    else:
        is_request = question is None and looks_like_request(raw)
    if is_request:
        frame = explain_request(raw)
        if frame.api_key in APIS:
            asked[piece.source, piece.target, frame.correlation_id] = (frame.api_key, frame.version)
        return frame
    return None if question is None else explain_response(raw, *question)
