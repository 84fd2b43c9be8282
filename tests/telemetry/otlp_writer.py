"""Writes OpenTelemetry's metrics in the wire format of Protocol Buffers, malformed ones included."""

from __future__ import annotations

from struct import pack

DELTA, CUMULATIVE = 1, 2
Attribute = str | int | float | bool


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes | int | float) -> bytes:
    """A field with bytes, a varint, or a double."""
    if isinstance(content, float):
        return varint(number << 3 | 1) + pack("<d", content)
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, bool):
        content = field(2, int(value))
    elif isinstance(value, str):
        content = field(1, value.encode())
    else:
        content = field(3 if isinstance(value, int) else 4, value)
    return field(1, name.encode()) + field(2, content)


def point(value: float, **attributes: Attribute) -> bytes:
    body = b"".join(field(7, attribute(name, content)) for name, content in attributes.items())
    body += field(2, 0.0) + field(3, 1.0)  # times, which are not read
    return body + (varint(6 << 3 | 1) + pack("<q", value) if isinstance(value, int) else field(4, value))


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name.encode()) + field(3, b"ms") + field(5, b"".join(field(1, one) for one in points))


def counter(name: str, *points: bytes, temporality: int = CUMULATIVE, is_monotonic: bool = True) -> bytes:
    data = b"".join(field(1, one) for one in points) + field(2, temporality) + field(3, int(is_monotonic))
    return field(1, name.encode()) + field(7, data)


def metrics(*written: bytes, **resource: Attribute) -> bytes:
    """The metrics of one resource."""
    attributes = b"".join(field(1, attribute(name, content)) for name, content in resource.items())
    scope = field(1, field(1, b"scope")) + b"".join(field(2, metric) for metric in written)
    return field(1, field(1, attributes) + field(2, scope))
