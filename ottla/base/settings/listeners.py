"""Addresses of listeners (`NAME://host:port`): those to open, and those to advertise to clients. `listener.security.protocol.map` has the
security protocol of each name; its default maps every protocol to itself. Listeners in `controller.listener.names` belong to a KRaft
controller and are not opened. Configurations for Apache's image often have such listeners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.settings.setting import SettingError

SERVED_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")


class Endpoint(NamedTuple):
    """One listener. An empty host means all addresses, port 0 a free port."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def is_authenticated_by_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def __str__(self) -> str:
        return f"{self.name}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """Formats an address for clients: `localhost:9092`, `[::1]:9092`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def protocol_map(entries: Sequence[str]) -> dict[str, str]:
    protocols = {}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not colon:
            raise SettingError(f"Invalid value {entry} for configuration listener.security.protocol.map: Expected NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_endpoints(setting: str, entries: Sequence[str], protocols: dict[str, str], left_out: Sequence[str]) -> list[Endpoint]:
    """Parses `listeners` or `advertised.listeners`. Raises `SettingError` with one sentence."""
    endpoints: list[Endpoint] = []
    skipped = {name.upper() for name in left_out}
    for entry in entries:
        endpoint = _parse(setting, entry, protocols)
        if endpoint.name in skipped:
            continue
        if any(endpoint.name == other.name for other in endpoints):
            raise SettingError(f"Invalid value {entry} for configuration {setting}: Each listener must have a different name")
        if endpoint.protocol not in SERVED_PROTOCOLS:
            served = ", ".join(SERVED_PROTOCOLS)
            raise SettingError(f"Invalid value {entry} for configuration {setting}: {endpoint.protocol} is none of {served}")
        endpoints.append(endpoint)
    return endpoints


def check_between_brokers(endpoints: Sequence[Endpoint], name: str | None, protocol: str, is_protocol_given: bool) -> None:
    """Checks that the listener for other brokers exists, and that it is given by name or by protocol, not by both. Raises `SettingError`
    with one sentence."""
    if name and is_protocol_given:
        raise SettingError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set")
    if name and name not in {endpoint.name for endpoint in endpoints}:
        raise SettingError(f"inter.broker.listener.name: {name} is not one of the listeners")
    if is_protocol_given and protocol not in {endpoint.protocol for endpoint in endpoints}:
        raise SettingError(f"security.inter.broker.protocol: no listener has the protocol {protocol}")


def _parse(setting: str, entry: str, protocols: dict[str, str]) -> Endpoint:
    name, separator, address = entry.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingError(f"Invalid value {entry} for configuration {setting}: Expected NAME://host:port")
    name = name.strip().upper()
    protocol = protocols.get(name)
    if protocol is None:
        raise SettingError(f"Invalid value {entry} for configuration {setting}: listener.security.protocol.map has no protocol for {name}")
    return Endpoint(name, host.strip("[]"), int(port), protocol)
