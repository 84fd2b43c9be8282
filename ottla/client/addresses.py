"""`host:port` lists as people write them for `bootstrap.servers`."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """`a:9092,[::1]:9093,b` as addresses, the port 9092 where none is given. Raises ValueError with a
    one-line message if the text is no such list."""
    found = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError("no broker is named; write HOST:PORT[,HOST:PORT...]")
    return found


def parse_address(text: str) -> Address:
    """One address; a listener's scheme before it (`PLAINTEXT://`) is dropped."""
    rest = text.rpartition("://")[2]
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        port = port[1:]
    elif rest.count(":") > 1:
        host, port = rest, ""
        if not all(letter in "0123456789abcdefABCDEF:.%" for letter in rest.partition("%")[0]):
            raise ValueError(f"{text!r} is not HOST:PORT")
    else:
        host, _, port = rest.partition(":")
    if not _is_name(host) or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host, int(port) if port else DEFAULT_PORT)


def _is_name(host: str) -> bool:
    """Whether this can be a host: the labels between its dots have 1 to 63 characters."""
    return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
