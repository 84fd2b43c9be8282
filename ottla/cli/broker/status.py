"""Implements `ottla status`: shows whether a broker runs in a data directory, where it listens, and whether it answers."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from ottla.cli.broker.data_directories import PLACE_OPTIONS, directories_of, running_broker
from ottla.cli.command import Args, command
from ottla.cli.render.ottla import Output


@command("status", "Does a broker run in a data directory, and does it answer?", *PLACE_OPTIONS, has_connection=False)
def _run(args: Args, output: Output) -> int:
    """Returns exit code 0 if a broker runs and answers, 1 if none runs, 3 if the broker does not answer or is not ready yet."""
    running = running_broker(args)
    directories = directories_of(args)
    found: dict[str, Any] = {"running": running is not None, "data_dir": directories, "data_bytes": sum(map(_size, directories))}
    if running is not None:
        found.update(
            pid=running.pid, address=running.address or None, since=f"{datetime.fromtimestamp(running.started_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
        found["answer_ms"], found["reason"] = _answer(running.address) if running.address else (None, "it has no address yet")
    output.show_object(found)
    if running is None:
        return 1
    return 0 if found["answer_ms"] is not None else 3


def _size(directory: str) -> int:
    """Returns the size of all files below a directory, in bytes. Skips files that vanish or cannot be read."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _answer(address: str) -> tuple[float | None, str | None]:
    """Returns the milliseconds to connect and get an ApiVersions response, which needs no login; or None and the reason. If a plain
    connection gets no answer it tries TLS, because the address does not say whether the listener uses TLS. The certificate is not checked,
    because the request has no secrets.
    """
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.errors import TransportError
    from ottla.client.security import Security

    reasons = []
    for security in (None, Security({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"})):
        started = time.perf_counter()
        try:
            with Cluster(address, timeout_s=2.0, security=security) as cluster:
                cluster.any_connection()
            return round((time.perf_counter() - started) * 1000, 1), None
        except TransportError as error:
            reasons.append(f"{'without TLS' if security is None else 'with TLS'}: {error}")
    return None, "; ".join(reasons)
