"""Parses lists of broker addresses, as in the property `bootstrap.servers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEFAULT_PORT = 9092
VARIABLES = ("OTTLA_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS")
"""The environment variables that name brokers, for the command line, test fixtures and pipelines. The first that is set is used."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_BOOTSTRAP = "localhost:9092"
"""The address of a broker if nothing names one."""


def addresses_in(environment: Mapping[str, str]) -> str:
    """Returns the value of the first of `VARIABLES` that is set, even an empty value. Returns an empty text if none is set."""
    return next((environment[name] for name in VARIABLES if name in environment), "")


def parse_addresses(text: str) -> list[Address]:
    """Parses a list such as `a:9092,[::1]:9093,b`; the default port is 9092. Raises ValueError with a one-line message for an empty list or
    a malformed address.
    """
    found = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError("no broker is named; write HOST:PORT[,HOST:PORT...]")
    return found


def parse_address(text: str) -> Address:
    """Parses one address and ignores a listener's scheme before it (`PLAINTEXT://`). Raises ValueError for a malformed address."""
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
    """Whether each label between the dots of a host name has 1 to 63 characters."""
    return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
