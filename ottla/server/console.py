"""The console that a broker starts beside itself (`ottla.console.listen`). Imported only in a broker that has one, after READY.

The console is a client of one of the broker's listeners. That listener has no TLS, because the broker does not know which certificate
authority its clients trust. On a listener with SASL the console asks its users to log in.
"""

from __future__ import annotations

import logging

from ottla.adapters.console_process import ConsoleProcess
from ottla.base.ports import AddressError
from ottla.base.settings.listeners import host_and_port
from ottla.server.monitoring.http import HttpPort
from ottla.server.monitoring.port import make_port
from ottla.server.node import Node

log = logging.getLogger("ottla")

FREE_LOOPBACK_PORT = "127.0.0.1:0"
LOGINS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""SASL mechanisms with a name and a password, the strongest first."""


async def open_http_for_console(node: Node) -> HttpPort | None:
    """Opens the HTTP port on a free loopback port, for the console's charts. Returns None if that fails; the log has the reason."""
    try:
        http = make_port(node, FREE_LOOPBACK_PORT)
        await http.start()
    except AddressError as error:
        log.warning("the console has no metrics: %s", error)
        return None
    return http


def start_console(node: Node, listen: str, http: HttpPort | None) -> ConsoleProcess | None:
    """Starts a console on `listen` (host:port). Returns None if the broker has no listener for it; the log has the reason."""
    host, _, port = listen.rpartition(":")
    try:
        options = client_options(node)
    except AddressError as error:
        log.warning("no console: %s", error)
        return None
    if http is not None and http.is_open_to_all:
        options += ["--metrics", http.url]
    return ConsoleProcess([*options, "--port", port], log.info, host=host.strip("[]"), registry=node.config.ottla_console_registry)


def client_options(node: Node) -> list[str]:
    """Returns the options of the console's connection: to the first listener without TLS, with a login if the listener has SASL. Raises
    `AddressError` if no listener fits."""
    for endpoint in node.endpoints:
        mechanisms = node.config.of_listeners.mechanisms(endpoint)
        login = next((name for name in LOGINS if name in mechanisms), "")
        if endpoint.is_tls or (mechanisms and not login):
            continue
        address = host_and_port(node.reachable_host(endpoint.host), endpoint.port)
        options = ["-b", address, "-X", f"security.protocol={endpoint.protocol}"]
        return [*options, "-X", f"sasl.mechanism={login}", "--login"] if login else options
    raise AddressError("it needs a listener without TLS, and with PLAIN or SCRAM if it has SASL; `ottla console -b ...` connects to others")
