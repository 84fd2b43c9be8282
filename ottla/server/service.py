"""The broker as a service: notifies systemd, handles signals, and reaps orphans as the first process of a container.

`notify` speaks systemd's protocol, a datagram on the socket named by NOTIFY_SOCKET; without that variable it does nothing. If systemd's
watchdog is on (WATCHDOG_USEC), systemd is notified that the event loop runs. SIGTERM and Ctrl-C stop cleanly, SIGHUP reloads. The first
process of a container inherits every orphan in it, and has to wait for them; it does so every second, because uvloop uses SIGCHLD itself.
The kernel does not end a first process by a signal without a handler, so a handler for the second SIGTERM is set there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
RELOADING = "RELOADING=1"
ALIVE = "WATCHDOG=1"
ALIVE_PER_TIMEOUT = 3
"""Watchdog messages in the time that systemd allows, so that one may be late."""

FIRST_PROCESS = 1
REAP_SECONDS = 1.0


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Sends the lines to systemd. Returns whether they were sent; a failure is ignored."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(path)
            sock.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True


def notify_ready(status: str) -> bool:
    """Notifies the service manager that the broker serves. To be called when the first request can be served."""
    return notify(READY, f"STATUS={status}", f"MAINPID={os.getpid()}")


def notify_stopping() -> bool:
    return notify(STOPPING, "STATUS=stopping")


def notify_reloaded(reload: Callable[[], None]) -> None:
    """Calls `reload`, and notifies systemd before and after it."""
    notify(RELOADING, f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    reload()
    notify(READY)


def feed_watchdog(loop: asyncio.AbstractEventLoop, environment: Mapping[str, str] = os.environ) -> bool:
    """If systemd's watchdog is on, notifies it from now on that the loop runs. systemd restarts a broker with a blocked loop."""
    microseconds, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdecimal() or not int(microseconds) or pid != str(os.getpid()):
        return False
    seconds = int(microseconds) / 1e6 / ALIVE_PER_TIMEOUT

    def feed() -> None:
        notify(ALIVE, environment=environment)
        loop.call_later(seconds, feed)

    feed()
    return True


def on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None]) -> None:
    """Calls `stop` at the first SIGTERM or Ctrl-C, `reload` at each SIGHUP. A second stop signal ends the process immediately."""

    is_first = os.getpid() == FIRST_PROCESS

    def stop_once() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            if is_first:
                loop.add_signal_handler(number, os._exit, 128 + number)
            else:
                signal.signal(number, signal.SIG_DFL)
        notify_stopping()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)
    loop.add_signal_handler(signal.SIGHUP, notify_reloaded, reload)
    if is_first:
        _reap_again(loop)


def _reap_again(loop: asyncio.AbstractEventLoop) -> None:
    reap_orphans()
    loop.call_later(REAP_SECONDS, _reap_again, loop)


def reap_orphans() -> int:
    """Reaps every child that has ended; returns how many. This includes a worker of the broker: the code that waits for it needs no exit
    code."""
    count = 0
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if not pid:
            return count
        count += 1
