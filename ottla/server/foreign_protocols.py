"""Detects foreign protocols on the first bytes of a connection: TLS and HTTP.

Otherwise the log would report a frame of absurd size when a client speaks TLS to a plain listener, or when a browser or scraper connects.
Both protocols have a field for the requested host name, so the log can name the host; Kafka's protocol has no such field. Only bytes that
have arrived are examined, and none are trusted.
"""

from __future__ import annotations

from struct import Struct, error

HEADER_BYTES_MIN = 10
"""Size of the smallest Kafka request."""
TLS_HANDSHAKE, CLIENT_HELLO, SERVER_NAME = 0x16, 0x01, 0
HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")
HEAD_BYTES_MAX = 8192
NAME_CHARACTERS_MAX = 255

_uint16 = Struct(">H").unpack_from
_RANDOM_END = 5 + 4 + 2 + 32
"""Position behind record header, handshake header, version and random bytes."""


def foreign_protocol(first: bytes | memoryview) -> str:
    """Describes a foreign protocol for the log. Returns an empty string if it is not recognised."""
    head = bytes(first[:HEAD_BYTES_MAX])
    if len(head) >= 2 and head[0] == TLS_HANDSHAKE and head[1] == 3:
        name = server_name(head)
        by = f" by the name {name}" if name else ""
        return f"a client connected{by} and speaks TLS, this listener does not: set security.protocol=PLAINTEXT there"
    if head[:4] in HTTP_METHODS:
        name = http_host(head)
        by = f" by the name {name}" if name else ""
        return f"a client connected{by} and speaks HTTP, this port speaks Kafka's protocol: metrics and health are at ottla.metrics.listen"
    return ""


def bad_size(size: int, first: bytes | memoryview, bytes_max: int) -> str:
    """Returns the reason why an invalid frame size closes a connection. `first` has the frame's first bytes, which may be another
    protocol's."""
    return foreign_protocol(first) or f"a frame of {size} bytes is outside {HEADER_BYTES_MIN}..{bytes_max}"


def server_name(hello: bytes) -> str:
    """Returns the host name in a TLS ClientHello (SNI), or an empty string."""
    try:
        if hello[5] != CLIENT_HELLO:
            return ""
        at = _RANDOM_END
        at += 1 + hello[at]  # session id
        at += 2 + _uint16(hello, at)[0]  # cipher suites
        at += 1 + hello[at]  # compression methods
        end = at + 2 + _uint16(hello, at)[0]
        at += 2
        while at + 4 <= end:
            kind, size = _uint16(hello, at)[0], _uint16(hello, at + 2)[0]
            if kind == SERVER_NAME:
                # A list of names. Only one kind of name, host names, was ever defined.
                length = _uint16(hello, at + 7)[0]
                return _shown(hello[at + 9 : at + 9 + length])
            at += 4 + size
    except (IndexError, error):
        pass  # cut short, or no ClientHello at all
    return ""


def http_host(head: bytes) -> str:
    """Returns the Host header of an HTTP request, or an empty string if it has not arrived."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"host":
            return _shown(value.strip())
    return ""


def _shown(name: bytes) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name.decode("ascii", "replace"))[:NAME_CHARACTERS_MAX]
