"""Detects a frequent mistake in `advertised.listeners`: clients connect to an address that the listener does not advertise.

A client connects to a name, requests metadata, and from then on uses the advertised address. If another machine has that address, the
client times out, and its own message does not name the cause. Kafka's protocol does not contain the name that the client used, but the
socket knows the address at which the client arrived. If the advertised name of the listener resolves to other addresses, one line is logged
for each address of a listener. The line ends with the setting for clients that should use this address. Its level is WARNING if the
advertised address is a loopback address and the client's address is not. Otherwise its level is INFO, because a forwarded port or a second
network may be intended. A name that does not resolve at all is a warning, too.

Names are resolved in a separate thread and only for addresses seen for the first time, so a slow name server delays no request. Not
detected: a port forwarded to the advertised address, and whether the client itself can resolve the name.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from ottla.base.config import Endpoint
from ottla.base.settings.listeners import host_and_port

log = logging.getLogger("ottla.network")

ADDRESSES_MAX = 64
"""Maximum number of examined addresses, over all listeners; a machine has few."""

Resolve = Callable[[str], Iterable[str]]


def resolve(host: str) -> Iterable[str]:
    """Resolves a name on this machine. Raises `OSError`."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


class Arrivals:
    """Remembers the addresses at which clients arrived. `advertised`: host and port by listener."""

    def __init__(self, advertised: Mapping[str, tuple[str, int]], resolve: Resolve = resolve) -> None:
        self._advertised = dict(advertised)
        self._resolve = resolve
        self._seen: set[tuple[str, str]] = set()

    def note(self, listener: str, arrived_at: str, client_host: str) -> None:
        """Notes that a connection was accepted at the address `arrived_at`, which is empty if it has closed again."""
        host, port = self._advertised[listener]
        key = (listener, arrived_at)
        if not arrived_at or arrived_at == host or key in self._seen or len(self._seen) >= ADDRESSES_MAX:
            return
        self._seen.add(key)
        work = (listener, arrived_at, client_host, host, port)
        threading.Thread(target=self._judge, args=work, name="ottla-arrivals", daemon=True).start()

    def _corrected(self, listener: str, address: str) -> str:
        """Returns the corrected `advertised.listeners`: this address for this listener, all others unchanged."""
        endpoints = {**self._advertised, listener: (str(_plain(address)), self._advertised[listener][1])}
        return ",".join(str(Endpoint(name, host, port)) for name, (host, port) in endpoints.items())

    def _judge(self, listener: str, arrived_at: str, client_host: str, host: str, port: int) -> None:
        """Logs a line if the advertised host does not resolve to the address. Runs in a thread, because it may wait for a name server."""
        advertised = host_and_port(host, port)
        try:
            addresses = {_plain(address) for address in self._resolve(host)}
        except OSError as error:
            log.warning("%s advertises %s, which does not resolve here: %s", listener, advertised, error.strerror or error)
            return
        if _plain(arrived_at) in addresses:
            return
        text = "a client at %s connected to %s, but %s advertises %s: clients must be able to reach that address, otherwise set %s=%s"
        is_lost = all(address.is_loopback for address in addresses) and not _plain(client_host).is_loopback
        log.log(
            logging.WARNING if is_lost else logging.INFO, text, client_host, arrived_at, listener, advertised, "advertised.listeners",
            self._corrected(listener, arrived_at), extra={"listener": listener},
        )  # fmt: skip


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Parses an address without its zone; an IPv4 address of an IPv6 socket becomes IPv4."""
    found = ip_address(address.partition("%")[0])
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
