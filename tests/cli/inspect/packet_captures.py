"""Packet captures made by hand: TCP segments in Ethernet, in pcap or pcapng."""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

CLIENT, BROKER = ("10.0.0.1", 50_000), ("10.0.0.2", 9092)
SYN, ACK = 2, 16


class Segment(NamedTuple):
    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    data: bytes
    flags: int = ACK


def ip_packet(segment: Segment) -> bytes:
    ports = struct.pack(">HH", segment.source[1], segment.target[1])
    tcp = ports + struct.pack(">IIBBHHH", segment.sequence & 0xFFFFFFFF, 0, 5 << 4, segment.flags, 65535, 0, 0) + segment.data
    hosts = [ipaddress.ip_address(host).packed for host, _ in (segment.source, segment.target)]
    if len(hosts[0]) == 16:
        return struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + hosts[0] + hosts[1] + tcp
    return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + hosts[0] + hosts[1] + tcp


def ethernet(segment: Segment) -> bytes:
    kind = 0x86DD if ":" in segment.source[0] else 0x0800
    return bytes(12) + struct.pack(">H", kind) + ip_packet(segment) + b"\0\0"  # a short frame is filled up


def pcap(packets: list[bytes], *, link: int = 1, order: str = "<") -> bytes:
    head = struct.pack(order + "IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    return head + b"".join(
        struct.pack(order + "IIII", 100, 1000 * number, len(packet), len(packet)) + packet for number, packet in enumerate(packets)
    )


def pcapng(packets: list[bytes], *, link: int = 1, order: str = "<") -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack(order + "I", len(body) + 12)
        return struct.pack(order + "I", kind) + size + body + size

    blocks = [block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))]
    blocks.append(block(1, struct.pack(order + "HHI", link, 0, 0) + struct.pack(order + "HHB3xHH", 9, 1, 9, 0, 0)))
    for number, packet in enumerate(packets):
        ticks = 100 * 10**9 + number * 10**6
        head = struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(packet), len(packet))
        blocks.append(block(6, head + packet))
    return b"".join(blocks)
