"""Runs a broker as a separate process: starts it, kills it, restarts it on the same port and directory, and checks its exit code and log at
the end. The caller ends the broker. `stop` is a clean stop and requires exit code 0 and a log without a traceback; `kill` is kill -9. The
broker's log is one file beside its data for all starts, and is printed when a check fails.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.clients.warm_start import WarmProcess

READY_SECONDS = 120
STOP_SECONDS = 120
"""Limits, not expectations: on a machine that does other work a start may take a hundred times as long as on an idle one."""
READY = re.compile(r"READY (\S+):(\d+) broker\.id=\d+ in \d+ ms\n")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ["-m", "ottla.cli.main"]


class BrokerProcess:
    """One broker; `settings` are `key=value`."""

    def __init__(self, directory: Path, settings: Sequence[str] = (), *, prefix: Sequence[str] = ()) -> None:
        self.data = directory / "data"
        self.log_path = directory / "broker.log"
        self.settings = list(settings)
        self.prefix = list(prefix)
        self.program = PROGRAM
        self.port = 0
        self.process: subprocess.Popen[str] | WarmProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, *self.program, *self.arguments()]

    def arguments(self) -> list[str]:
        assignments = [part for setting in self.settings for part in ("--set", setting)]
        return ["start", "-d", str(self.data), "--port", str(self.port), *assignments]

    def start(self) -> BrokerProcess:
        """Starts the broker and waits for its READY line."""
        assert not self.is_running
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        with self.log_path.open("ab") as log:
            if self.prefix or self.program != PROGRAM:
                self.process = subprocess.Popen(
                    self.command(), stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment, start_new_session=True
                )
            else:
                self.process = WarmProcess(self.arguments(), stderr=log, environment=environment)
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_SECONDS)
        found = READY.fullmatch(self.process.stdout.readline()) if readable else None
        if found is None:
            self.kill()
            raise AssertionError(f"the broker did not become ready:\n{self.log_tail()}")
        self.port = int(found[2])
        return self

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Sends SIGTERM. The broker must end by itself, with exit code 0 and without a traceback in its log."""
        code = self._signal(signal.SIGTERM)
        assert code == 0, f"exit code {code}:\n{self.log_tail()}"
        self.check_log()

    def restart(self) -> None:
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kills the broker and starts it again."""
        self.kill()
        self.start()

    def _signal(self, number: int) -> int:
        process = self.process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the broker did not end within {STOP_SECONDS} s:\n{self.log_tail()}") from None
        if process.stdout is not None:
            process.stdout.close()
        return code

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def check_log(self, since: int = 0) -> None:
        """Checks that the log has no traceback. `since` is the former length of the log; only the text after it is checked."""
        text = self.log_text()[since:]
        assert "Traceback" not in text, f"a traceback in the broker's log:\n{text[max(0, text.index('Traceback') - 1000) :][:6000]}"

    def rss_bytes(self) -> int:
        """The resident memory, from /proc."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


def eventually(is_true: object, seconds: float = 60, pause: float = 0.05) -> Any:
    """Calls a function until its result is true, and returns the result. If that takes too long, raises AssertionError with the last
    result.
    """
    assert callable(is_true)
    deadline = time.monotonic() + seconds
    while not (answer := is_true()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {answer!r}"
        time.sleep(pause)
    return answer
