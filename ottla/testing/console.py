"""Implements pytest's option `--ottla-console`: after a failed test, the web console shows the data that the test has written to its
brokers, until the user continues. The test's fixtures are not torn down yet, so its brokers still run. Without a terminal the run does not
wait, and its report has one line with the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ottla.adapters.console_process import ConsoleProcess
from ottla.testing.reaper import remove_directory, temporary_directory

if TYPE_CHECKING:
    import pytest

    from ottla.testing.handle import BrokerHandle

TITLE = "Console"


@contextmanager
def terminal(config: pytest.Config) -> Iterator[bool]:
    """Gives the process its own standard input back for the block. Yields whether a user can answer on it."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend(in_=True)
    try:
        yield sys.stdin is not None and sys.stdin.isatty()
    finally:
        if capture is not None:
            capture.resume()


def why_not(config: pytest.Config) -> str:
    """Returns the reason why no console can wait for the user, or an empty text if a console can wait."""
    if hasattr(config, "workerinput"):
        return "--ottla-console does not wait: a worker of pytest-xdist has no terminal; run the test with -n 0"
    with terminal(config) as has_user:
        return "" if has_user else "--ottla-console does not wait: standard input is no terminal"


def show(config: pytest.Config, name: str, handles: Iterable[BrokerHandle]) -> None:
    """Starts a console for each running broker or cluster, prints the addresses, and waits for Enter. Ctrl-C ends the run as usual."""
    running = sorted((handle for handle in handles if handle.direct_server), key=lambda handle: handle.direct_server)
    with terminal(config), ExitStack() as consoles:
        is_shown = False
        for handle in running:
            console = consoles.enter_context(console_of(handle, _say))
            is_shown = console.wait_until_decided() or is_shown
        if is_shown:
            _say(f"{name} has failed, and its broker keeps running. Press Enter to continue.")
            sys.stdin.readline()


@contextmanager
def console_of(handle: BrokerHandle, report: Callable[[str], object]) -> Iterator[ConsoleProcess]:
    """Yields a console on a free port, connected as the broker's administrator. Stops it after the block."""
    directory = temporary_directory("ottla-console-")
    # Passwords are in a file, because other users of the machine can see the options of a process.
    file = handle.write_java_config(directory / "client.properties")
    options = ["-b", handle.direct_server, "-X", f"security.protocol={handle.protocol}", "--command-config", str(file), "--port", "0"]
    console = ConsoleProcess(options, report)
    try:
        yield console
    finally:
        console.stop()
        remove_directory(directory)


def _say(line: str) -> None:
    print(f"\n{line}", flush=True)
