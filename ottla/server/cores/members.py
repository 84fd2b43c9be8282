"""Makes the settings of each broker from the configuration of the service.

The brokers have consecutive ids from `broker.id` on (1 if it is not set), and a folder `broker.ID` in each data directory. Each broker
takes the ports after its predecessor's: with two listeners, each port is two higher. Instead of port 0 a broker gets a port that is free
now, and keeps it. The brokers' metrics are on the loopback address, on the ports after the service's own metrics port (free ports if that
is 0).

Without `zookeeper.connect`, settings that are not configured have the defaults of a single broker: one replica of each internal topic.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from ottla.base.config import BROKER_SETTINGS, BrokerConfig, ConfigError, ConfigSource
from ottla.base.immutable import immutable
from ottla.base.settings.deployments import SINGLE_BROKER_DEFAULTS
from ottla.base.settings.listeners import Endpoint
from ottla.server.monitoring.http import parse_address

FIRST_ID = 1
PORT_MAX = 65_535
FOLDER = "broker."
LOOPBACK = "127.0.0.1"
HTTP_SETTINGS = ("ottla.metrics.token.file", "ottla.metrics.ssl.certificate", "ottla.metrics.ssl.key", "ottla.metrics.hosts")
"""Settings of the service's own HTTP port. The HTTP ports of its brokers do not have them."""


@immutable
class Member:
    """One broker of the service."""

    broker_id: int
    settings: Mapping[str, str]
    http_port: int
    """The port of its metrics on the loopback address; 0 if the service has no HTTP port."""


def members_of(config: BrokerConfig, zookeeper: str) -> list[Member]:
    """Returns the brokers. `zookeeper` is their `zookeeper.connect`. Raises `ConfigError` if a port would be taken twice or is above
    65535, `AddressError` if `ottla.metrics.listen` is no address."""
    first_id = config.this_broker_id if config.source("broker.id") is not ConfigSource.DEFAULT else FIRST_ID
    count = config.ottla_cores
    free_ports = iter(_free_ports(count * (len(config.endpoints) + 1)))
    http_ports = _http_ports(config, count, free_ports)
    listeners = [[_settled(endpoint, free_ports) for endpoint in _moved(config.endpoints, number)] for number in range(count)]
    _check_ports([endpoint.port for endpoints in listeners for endpoint in endpoints], [_http_port(config), *http_ports])
    common = _common_settings(config, zookeeper)
    members = []
    for number, endpoints in enumerate(listeners):
        broker_id = first_id + number
        settings = {**common, "broker.id": str(broker_id), "listeners": _text(endpoints)}
        settings["log.dirs"] = ",".join(data_directories(config.data_directories, broker_id))
        if config.advertised_endpoints:
            settings["advertised.listeners"] = _text(_moved(config.advertised_endpoints, number))
        if http_ports:
            settings["ottla.metrics.listen"] = f"{LOOPBACK}:{http_ports[number]}"
        members.append(Member(broker_id, settings, http_ports[number] if http_ports else 0))
    return members


def data_directories(directories: Sequence[str], broker_id: int) -> list[str]:
    return [f"{directory}/{FOLDER}{broker_id}" for directory in directories]


def _common_settings(config: BrokerConfig, zookeeper: str) -> dict[str, str]:
    found = {"ottla.cores": "1", "zookeeper.connect": zookeeper, "ottla.console.listen": ""}
    if config.is_single_broker:
        for name, value in SINGLE_BROKER_DEFAULTS.items():
            if config.source(name) is ConfigSource.DEFAULT:
                found[name] = BROKER_SETTINGS[name].text(value)
    if config.ottla_metrics_listen:
        found.update(dict.fromkeys(HTTP_SETTINGS, ""))
    return found


def _moved(endpoints: Sequence[Endpoint], number: int) -> list[Endpoint]:
    return [endpoint._replace(port=endpoint.port and endpoint.port + number * len(endpoints)) for endpoint in endpoints]


def _settled(endpoint: Endpoint, free_ports: Iterator[int]) -> Endpoint:
    return endpoint if endpoint.port else endpoint._replace(port=next(free_ports))


def _text(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(map(str, endpoints))


def _http_ports(config: BrokerConfig, count: int, free_ports: Iterator[int]) -> list[int]:
    """Returns the ports of the brokers' metrics: the next ones after the service's port, free ones if it is 0, none without metrics."""
    if not config.ottla_metrics_listen:
        return []
    first = _http_port(config)
    return [first + 1 + number for number in range(count)] if first else list(islice(free_ports, count))


def _http_port(config: BrokerConfig) -> int:
    """Returns the port of the service's metrics; 0 for any free one, or without metrics."""
    return parse_address(config.ottla_metrics_listen)[1] if config.ottla_metrics_listen else 0


def _free_ports(count: int) -> list[int]:
    """Returns different ports that are free on the loopback address now."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _check_ports(listeners: Sequence[int], http_ports: Sequence[int]) -> None:
    ports = [port for port in [*listeners, *http_ports] if port]
    if max(ports, default=0) > PORT_MAX:
        raise ConfigError(f"a broker would have port {max(ports)}: choose lower ones, each broker takes those after its predecessor's")
    twice = [port for port, times in Counter(ports).items() if times > 1]
    if twice:
        raise ConfigError(f"port {twice[0]} would be taken twice: leave as many ports free above each listener and ottla.metrics.listen")
