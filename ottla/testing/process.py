"""Starts a broker as a separate process, waits until it is ready, stops it within a time limit, and suspends and resumes it by signals.

The process listens on the loopback address and keeps its data in one directory. `START_SECONDS_MAX` is for a machine under load; an idle
machine needs a fraction of a second. If the broker does not start, the error has the end of the broker's log. The process has its own
session, so that Ctrl-C reaches only the process that started it. When that process has died, its reaper (`reaper.py`) kills the broker.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.testing.clock import TimeControl
from ottla.testing.logins import is_secret, properties_text
from ottla.testing.reaper import Reaper, reaper

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0
SUSPEND_SECONDS_MAX = 5.0
LOG_TAIL_BYTES = 4000
POLL_SECONDS = 0.001

_ADDRESS_IN_USE = "Address already in use"
_READY = re.compile(rb"READY (\S+):(\d+) ")


class BrokerDidNotStart(Exception):
    """The broker did not start. The message begins with the cause, the last line of its log, and has the end of the log."""


class BrokerPortTaken(BrokerDidNotStart):
    """Another process listens on the broker's port."""


class ChildProcess:
    """A child process of the test process, which may start it several times. It is not ended when a forked child of the test process ends.
    """

    def __init__(self, log_file: Path, reaped_by: Reaper | None = None) -> None:
        """`reaped_by` is the reaper that ends the process; None for the reaper of this process."""
        self.log_file = log_file
        self._reaped_by = reaped_by
        self._process: subprocess.Popen[bytes] | None = None
        self._starter_pid = 0
        self.is_suspended = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "the process is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _launch(
        self, command: Sequence[str], directory: Path, given: Mapping[str, str], *, is_new_log: bool, output: int | None,
        passed: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Starts the process, which inherits the descriptors in `passed`. Its standard error is written to its log, and so is its standard
        output unless `output` is given."""
        owner = self._reaped_by = self._reaped_by or reaper()
        with self.log_file.open("wb" if is_new_log else "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log if output is None else output, stderr=log, cwd=directory,
                start_new_session=True, env={**given, **owner.environment}, pass_fds=passed,
            )  # fmt: skip
        self._starter_pid = os.getpid()
        owner.add_process(self._process.pid)

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL if the process does not end in time."""
        process = self._own()
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a suspended process would not receive the next signal
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        self._has_ended(process)

    def begin_stop(self) -> None:
        process = self._own()
        if process is not None and process.poll() is None:
            process.terminate()

    def kill(self) -> None:
        """Kills the process (`kill -9`)."""
        process = self._own()
        if process is not None:
            process.kill()
            self._has_ended(process)

    def suspend(self) -> None:
        """Sends SIGSTOP: connections remain open, but no request is answered."""
        suspend(self.pid)
        self.is_suspended = True

    def resume(self) -> None:
        if self.is_suspended:
            resume(self.pid)
            self.is_suspended = False

    def log_tail(self) -> str:
        return self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "it said nothing"

    def _own(self) -> subprocess.Popen[bytes] | None:
        """Returns the child process; None in a process that was forked after the start of the child."""
        return self._process if self._starter_pid == os.getpid() else None

    def _has_ended(self, process: subprocess.Popen[bytes]) -> None:
        assert self._reaped_by is not None
        process.wait()
        self._reaped_by.forget_process(process.pid)
        self._forget(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
        self._process, self.is_suspended = None, False


class BrokerProcess(ChildProcess):
    """One broker process, from start to stop; it may be started again, at the same port."""

    def __init__(
        self,
        data_dir: Path,
        log_file: Path,
        settings: Mapping[str, str],
        topics: Sequence[str] = (),
        *,
        protocol: str = "PLAINTEXT",
        reaped_by: Reaper | None = None,
    ) -> None:
        """`protocol` is the security protocol of the listener."""
        super().__init__(log_file, reaped_by)
        self.data_dir = data_dir
        self.port = 0
        """The port of the last start; 0 before the first one (any free port)."""
        self.time = TimeControl()
        self._settings = dict(settings)
        self._topics = list(topics)
        self._protocol = protocol

    def start(self, seconds_max: float = START_SECONDS_MAX) -> tuple[str, int]:
        self.launch()
        return self.wait_until_ready(seconds_max)

    def spare(self) -> BrokerProcess:
        """Launches a process that can replace this one. It waits until `time.begin` is called on the returned object."""
        made = BrokerProcess(self.data_dir, self.log_file, self._settings, protocol=self._protocol, reaped_by=self._reaped_by)
        made.port = self.port
        made.launch(waits=True)
        return made

    def launch(self, *, waits: bool = False) -> None:
        """Starts the process, which is not ready yet when this returns. With `waits` the process waits for `time.begin` first."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ottla.cli.main", "start", "--data-dir", str(self.data_dir), *self._arguments()]
        with self.time.opened(waits=waits) as (descriptor, variable):
            given = {**environment(), **variable}
            self._launch(command, self.data_dir, given, is_new_log=False, output=subprocess.PIPE, passed=[descriptor])

    def _arguments(self) -> list[str]:
        """Returns the command line's options. Secret settings are written to a file that only this user can read, because every user can
        read arguments.
        """
        if self._protocol == "PLAINTEXT":
            found = ["--port", str(self.port)]
        else:
            found = ["--set", f"listeners={self._protocol}://127.0.0.1:{self.port}"]
        hidden = {name: value for name, value in self._settings.items() if is_secret(name)}
        if hidden:
            file = self.log_file.with_suffix(".properties")
            file.touch(0o600)
            file.write_text(properties_text(hidden), encoding="utf-8")
            found += ["--config", str(file)]
        for name, value in self._settings.items():
            if name not in hidden:
                found += ["--set", f"{name}={value}"]
        return found + (["--seed-topic", ",".join(self._topics)] if self._topics else [])

    def wait_until_ready(self, seconds_max: float = START_SECONDS_MAX) -> tuple[str, int]:
        """Waits until the launched process is ready, and returns its host and port. A process that does not become ready is killed. Raises
        `BrokerDidNotStart`, or its subclass `BrokerPortTaken` if another process has the port.
        """
        address = self._ready_address(time.monotonic() + seconds_max)
        if address is None:
            self.kill()
            log, _, cause = self.log_tail().rpartition("\n")
            failure = BrokerPortTaken if _ADDRESS_IN_USE in cause else BrokerDidNotStart
            earlier = f"\nThe broker did not start. Its log before that:\n{log}" if log else ""
            raise failure(cause.removeprefix("error: ") + earlier)
        self.port = address[1]
        return address

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        super()._forget(process)
        self.time.close()

    def forget(self) -> None:
        """Forgets the process, so that another process can stop it."""
        assert self._process is not None
        self._process.returncode = 0  # this process does not wait for it, and Popen must not warn of that
        self._forget(self._process)

    def _ready_address(self, deadline: float) -> tuple[str, int] | None:
        process = self._process
        assert process is not None and process.stdout is not None
        said = b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([process.stdout], [], [], left)[0]:
                break
            piece = os.read(process.stdout.fileno(), 4096)
            said += piece
            found = _READY.search(said)
            if found:
                return found[1].decode(), int(found[2])
            if not piece:
                break
        return None


def environment() -> dict[str, str]:
    """Returns this process's environment with the path to this package, and without variables that a broker would use."""
    foreign = ("CLUSTER_ID", "NOTIFY_SOCKET")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_") and name not in foreign}
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [package_parent, *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def suspend(pid: int) -> None:
    """Sends SIGSTOP and waits until the process has stopped. Raises `TimeoutError`."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + SUSPEND_SECONDS_MAX
    while not has_stopped(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stop")
        time.sleep(POLL_SECONDS)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def has_stopped(pid: int) -> bool:
    """Whether every thread of the process has stopped."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        # The name, the second field, is in brackets and may contain blanks.
        return all((task / "stat").read_bytes().rpartition(b") ")[2][:1] in b"Tt" for task in tasks)
    except OSError:
        time.sleep(POLL_SECONDS * 10)  # no /proc here: the signal is delivered by then
        return True
