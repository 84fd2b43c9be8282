"""Starts `ottla console` as a process beside this one, and ends it with this one.

The console reads from a pipe whose write end only this process has. The system closes that end when this process ends, however it ends, and
the console then ends too. If the console fails or is killed, this process reports it and is not affected.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

STOP_SECONDS_MAX = 3.0
"""Seconds that an ending console may take. It finishes open answers for at most one second, and is killed after this time."""
READY = "READY "
REGISTRY = "OTTLA_CONSOLE_REGISTRY"
"""The environment variable with the URL of a schema registry. The list of processes would show a password in an argument."""


class ConsoleProcess:
    """One console. `report` is called in a thread, with one line for each thing that a user has to know."""

    def __init__(
        self, arguments: Sequence[str], report: Callable[[str], object], *, host: str = "127.0.0.1", registry: str | None = None
    ) -> None:
        """`arguments` are options of `ottla console`, `registry` is the URL of a schema registry."""
        self.url = ""
        self._report = report
        self._is_ending = False
        self._is_decided = threading.Event()
        # The console gets its own session, so that Ctrl-C reaches only this process, which then ends the console.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "console", "--host", host, "--with-parent", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, text=True, errors="replace",
            env={**os.environ, **({REGISTRY: registry} if registry else {})},
        )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, name="console", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_decided(self) -> bool:
        """Waits until the console serves or has ended. Returns whether it serves."""
        self._is_decided.wait()
        return bool(self.url)

    def begin_stop(self) -> None:
        """Asks the console to end."""
        self._is_ending = True
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """Ends the console and waits for its end."""
        self.begin_stop()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        """Reports the console's address, its later lines, and its end."""
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said = line.strip().removeprefix("error: ")
            if said.startswith(READY) and not self.url:
                self.url = said.split()[1]
                self._report(f"console at {self.url}")
                self._is_decided.set()
            elif self.url and said:
                self._report(f"console: {said}")
        code = self._process.wait()
        if not self._is_ending:
            self._report(f"the console has ended with code {code}" if self.url else f"no console: {said or f'it ended with code {code}'}")
        self._is_decided.set()
