"""Writes frames as a packet capture (pcap), which `ottla wire` and Wireshark read.

Each frame becomes a TCP packet of raw IP. A frame that was not recorded completely is left out. Its response is left out too, because a
reader could not decode it without the request.
"""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.wire.messages.describe_frames import FramePair

HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101)
"""Head of the file: microseconds, packets of at most 256 KiB, raw IP."""
LOCAL = "127.0.0.1"
Endpoint = tuple[str, int]


def as_capture(pairs: Iterable[FramePair], broker: Endpoint) -> bytes:
    """Returns the frames of one broker as a file. `broker` is its host and port; a host that is no address is shown as 127.0.0.1."""
    sent: Counter[tuple[Endpoint, Endpoint]] = Counter()
    return HEADER + b"".join(_packet(at_us, source, target, data, sent) for at_us, source, target, data in sorted(_frames(pairs, broker)))


def _frames(pairs: Iterable[FramePair], broker: Endpoint) -> Iterator[tuple[int, Endpoint, Endpoint, bytes]]:
    """Yields the time in microseconds, the endpoints and the bytes of each frame."""
    for pair in pairs:
        host, _, port = pair.client.rpartition(":")
        client, at_us = (host, int(port)), pair.at_ms * 1000
        if pair.request is None or len(pair.request) < pair.request_bytes:
            continue
        yield at_us, client, broker, pair.request_bytes.to_bytes(4, "big") + pair.request
        if pair.response is not None and len(pair.response) == pair.response_bytes:
            yield at_us + pair.duration_us, broker, client, pair.response_bytes.to_bytes(4, "big") + pair.response


def _packet(at_us: int, source: Endpoint, target: Endpoint, data: bytes, sent: Counter[tuple[Endpoint, Endpoint]]) -> bytes:
    """Returns a packet with its header in the file. `sent` counts the bytes of each direction, for the sequence numbers."""
    sequence, acknowledged = sent[source, target], sent[target, source]
    sent[source, target] += len(data)
    offset_and_flags = 5 << 12 | 0x18  # a header of five words; PSH and ACK
    tcp = struct.pack(
        ">HHIIHHHH", source[1], target[1], sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF, offset_and_flags, 0xFFFF, 0, 0
    )
    addresses = [ipaddress.ip_address(_address(host)) for host, _ in (source, target)]
    if any(one.version == 6 for one in addresses):
        packed = b"".join(one.packed if one.version == 6 else bytes(10) + b"\xff\xff" + one.packed for one in addresses)
        ip = struct.pack(">IHBB", 6 << 28, len(tcp) + len(data), 6, 64) + packed
    else:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp) + len(data), 0, 0, 64, 6, 0) + b"".join(one.packed for one in addresses)
    packet = ip + tcp + data
    return struct.pack("<IIII", at_us // 1_000_000, at_us % 1_000_000, len(packet), len(packet)) + packet


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return LOCAL
