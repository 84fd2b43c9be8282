"""Closes the connections that a process of Spark keeps until its end."""

from __future__ import annotations

from ottla.spark import connections, relay


def close_clients() -> None:
    while connections._clients:
        connections._clients.popitem()[1].close()


def close_relays() -> None:
    while relay._relays:
        relay._relays.popitem()[1].close()
