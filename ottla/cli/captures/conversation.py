"""Reads requests and responses of Kafka's protocol (frames) from a packet capture in the format pcap (tcpdump) or pcapng (Wireshark).

Supports Ethernet with or without VLAN, BSD loopback, raw IP and Linux cooked captures, with IPv4 and IPv6. Segments are ordered by
sequence number, and retransmitted bytes are dropped. A stream without a captured SYN begins at its first captured segment. A stream ends
before the first missing byte. Damaged captures raise `WireError`. IP fragments and TLS are not supported.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.analysis.frames import FRAME_BYTES_MAX, Frame, SeenFrame, explain_request, explain_response, looks_like_request
from ottla.base.errors import WireError
from ottla.wire.apis import APIS

PCAP_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
PCAPNG_MAGIC = b"\x0a\x0d\x0d\x0a"
PACKET_BYTES_MAX = 1 << 20

_ETHERNET, _RAW, _RAW_OLD, _NULL, _COOKED, _COOKED_2 = 1, 101, 12, 0, 113, 276
_IPV4, _IPV6, _VLAN = 0x0800, 0x86DD, (0x8100, 0x88A8)
_TCP = 6
_SYN, _ACK = 2, 16


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Piece(NamedTuple):
    """Consecutive bytes of one direction. `seconds` is the time of the packet that completed them."""

    source: Endpoint
    target: Endpoint
    seconds: float
    data: bytes


class _Segment(NamedTuple):
    source: Endpoint
    target: Endpoint
    sequence: int
    flags: int
    data: bytes


def is_recording(data: bytes) -> bool:
    return data[:4] in PCAP_MAGICS or data[:4] == PCAPNG_MAGIC


def read_pieces(data: bytes) -> Iterator[Piece]:
    """Yields the bytes of all streams. A piece is yielded as soon as all bytes before it in its stream are known. Raises `WireError`."""
    streams: dict[tuple[Endpoint, Endpoint], _Stream] = {}
    for seconds, segment in _segments(data):
        key = (segment.source, segment.target)
        if segment.flags & _SYN:
            streams[key] = _Stream(segment.sequence + 1)
            continue
        stream = streams.get(key)
        if stream is None:
            stream = streams[key] = _Stream(segment.sequence)
        ready = stream.take(segment.sequence, segment.data)
        if ready:
            yield Piece(segment.source, segment.target, seconds, ready)


def clients_of(data: bytes) -> set[Endpoint]:
    """Returns the endpoints that sent a captured SYN, so they opened the connection. Raises `WireError`."""
    return {segment.source for _, segment in _segments(data) if segment.flags & (_SYN | _ACK) == _SYN}


class _Stream:
    """One direction of a connection. `take` adds a segment and returns the bytes that are now complete."""

    def __init__(self, expected: int) -> None:
        self.expected = expected & 0xFFFFFFFF
        self.waiting: dict[int, bytes] = {}

    def take(self, sequence: int, data: bytes) -> bytes:
        if data:
            self.waiting[sequence] = max(data, self.waiting.get(sequence, b""), key=len)
        out = bytearray()
        is_moving = True
        while is_moving:
            is_moving = False
            for start in list(self.waiting):
                behind = (self.expected - start) & 0xFFFFFFFF
                if behind >= 1 << 31:  # bytes before this segment are missing
                    continue
                piece = self.waiting.pop(start)[behind:]
                out += piece
                self.expected = (self.expected + len(piece)) & 0xFFFFFFFF
                is_moving = is_moving or bool(piece)
        return bytes(out)


# Files


def _packets(data: bytes) -> Iterator[tuple[float, int, bytes]]:
    """Yields (seconds, link type, bytes) of each packet."""
    if data[:4] == PCAPNG_MAGIC:
        yield from _pcapng_packets(data)
        return
    if data[:4] not in PCAP_MAGICS:
        raise WireError("neither pcap nor pcapng")
    order, unit = PCAP_MAGICS[data[:4]]
    (link,) = Struct(order + "I").unpack_from(data, 20)
    head = Struct(order + "IIII")
    position = 24
    while position + head.size <= len(data):
        seconds, fraction, size, _ = head.unpack_from(data, position)
        position += head.size
        if size > PACKET_BYTES_MAX:
            raise WireError(f"a packet of {size} bytes at {position}")
        yield seconds + fraction * unit, link & 0xFFFF, data[position : position + size]
        position += size


def _pcapng_packets(data: bytes) -> Iterator[tuple[float, int, bytes]]:
    order = "<"
    interfaces: list[tuple[int, float]] = []
    position = 0
    while position + 12 <= len(data):
        if data[position : position + 4] == PCAPNG_MAGIC:
            order = "<" if data[position + 8 : position + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = Struct(order + "II").unpack_from(data, position)
        if size < 12 or size % 4 or position + size > len(data):
            raise WireError(f"a block of {size} bytes at {position}")
        body = data[position + 8 : position + size - 4]
        if kind == 1:
            (link,) = Struct(order + "H").unpack_from(body, 0)
            interfaces.append((link, _resolution(body[8:], order)))
        elif kind == 6:
            number, high, low, captured, _ = Struct(order + "IIIII").unpack_from(body, 0)
            link, unit = interfaces[number]
            yield (high << 32 | low) * unit, link, body[20 : 20 + captured]
        elif kind == 3 and interfaces:
            yield 0.0, interfaces[0][0], body[4:]
        position += size


def _resolution(options: bytes, order: str) -> float:
    """Returns the seconds per timestamp unit of an interface, from its option 9 (if_tsresol). The default is a microsecond."""
    position = 0
    while position + 4 <= len(options):
        code, size = Struct(order + "HH").unpack_from(options, position)
        if code == 9 and size == 1:
            value = options[position + 4]
            return float(2.0 ** -(value & 127)) if value & 128 else float(10.0**-value)
        if code == 0:
            break
        position += 4 + (size + 3) // 4 * 4
    return 1e-6


# Packets


def _segments(data: bytes) -> Iterator[tuple[float, _Segment]]:
    """Yields the TCP segments of a capture, each with its time in seconds. Raises `WireError`."""
    try:
        for seconds, link, packet in _packets(data):
            segment = _segment(link, packet)
            if segment is not None:
                yield seconds, segment
    except (StructError, IndexError, ValueError) as error:
        raise WireError(f"not a packet capture: {error}") from None


def _segment(link: int, packet: bytes) -> _Segment | None:
    """Returns the TCP segment in a packet; None for other packets."""
    ip = _ip_packet(link, packet)
    if ip is None or len(ip) < 20:
        return None
    if ip[0] >> 4 == 4:
        if ip[9] != _TCP:
            return None
        end = int.from_bytes(ip[2:4], "big") or len(ip)  # the length is 0 if the network card splits segments
        source, target, tcp = ip[12:16], ip[16:20], ip[(ip[0] & 15) * 4 : end]
    elif ip[0] >> 4 == 6 and len(ip) >= 40 and ip[6] == _TCP:
        size = int.from_bytes(ip[4:6], "big")
        source, target, tcp = ip[8:24], ip[24:40], ip[40 : 40 + size] if size else ip[40:]
    else:
        return None
    if len(tcp) < 20:
        return None
    ports = int.from_bytes(tcp[:2], "big"), int.from_bytes(tcp[2:4], "big")
    ends = [Endpoint(str(ipaddress.ip_address(host)), port) for host, port in zip((source, target), ports, strict=True)]
    return _Segment(ends[0], ends[1], int.from_bytes(tcp[4:8], "big"), tcp[13], tcp[(tcp[12] >> 4) * 4 :])


def _ip_packet(link: int, packet: bytes) -> bytes | None:
    if link in (_RAW, _RAW_OLD):
        return packet
    if link == _NULL:
        return packet[4:]
    if link == _COOKED:
        return packet[16:] if int.from_bytes(packet[14:16], "big") in (_IPV4, _IPV6) else None
    if link == _COOKED_2:
        return packet[20:] if int.from_bytes(packet[:2], "big") in (_IPV4, _IPV6) else None
    if link != _ETHERNET:
        raise WireError(f"packets of link type {link} are not read here; record with `tcpdump -i any` or on an Ethernet device")
    position = 12
    while (kind := int.from_bytes(packet[position : position + 2], "big")) in _VLAN:
        position += 4
    return packet[position + 2 :] if kind in (_IPV4, _IPV6) else None


class _Side:
    """The received part of an incomplete frame, in one direction of a connection."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.is_nonsense = False


def conversation(data: bytes, port: int | None) -> Iterator[SeenFrame]:
    """Yields the frames of a capture in order. A response is matched with its request by connection and correlation id. With `port`, only
    connections of brokers that listen on it are read. Raises `WireError` for a damaged capture."""
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
    """Explains a frame as a request or a response; returns None for a response without a captured request, or another port. To find out
    which side is the broker it uses `port`, else the captured SYN, else the first bytes of the frame.
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
