"""Shares one broker among the workers of a pytest-xdist run. The first worker that needs the broker starts it, other workers find it, and
the controller process stops it.

The controller gives every worker the name of one directory. The worker that holds the directory's lock may start the broker, and writes the
broker's address to a file of the directory. Workers may end before others have finished, so no worker stops the broker. The controller
stops the broker when all workers have ended, even if one has crashed. If the controller has died, the workers' reapers kill the broker.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.adapters.lock import lock
from ottla.testing.clock import Clock
from ottla.testing.handle import BrokerHandle
from ottla.testing.logins import ADMINISTRATOR, Logins, logins_of
from ottla.testing.process import STOP_SECONDS_MAX, BrokerProcess
from ottla.testing.reaper import Reaper
from ottla.testing.snapshot import new_snapshot, take_snapshot

STATE_FILE = "broker.json"
LOG_FILE = "broker.log"
LOCK_FILE = "lock"
LOCK_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005


class SharedBroker(BrokerHandle):
    """A broker that other processes use as well: `pause` affects this process's connections only, and workers do not stop it."""

    what = "the broker that all workers of pytest-xdist share"

    def __init__(self, bootstrap: str, pid: int, data_dir: Path, logins: Logins | None = None) -> None:
        super().__init__(bootstrap, logins=logins)
        self.pid = pid
        self.data_dir = data_dir

    @property
    def log_files(self) -> dict[str, Path]:
        return {"the shared broker": self.data_dir.parent / LOG_FILE}

    def snapshot(self, path: str | Path | None = None) -> Path:
        """Copies the broker's current data, like `Broker.snapshot`. Meanwhile the broker is suspended for all processes. Waits for the end
        of another process's snapshot, which would resume the broker too early."""
        with _locked(self.data_dir.parent):
            return take_snapshot(self.pid, self.data_dir, new_snapshot(path))

    @property
    def clock(self) -> Clock:
        """Raises `RuntimeError`, because the time would move for the tests of all workers."""
        raise RuntimeError("the workers of pytest-xdist share this broker; move the time of the test's own: kafka_cluster(1).clock")

    def reset(self) -> None:
        """Removes this process's faults. Topics and groups are not deleted, because other workers use theirs."""
        if self._proxy is not None:
            self._proxy.reset()


def share_broker(directory: Path, settings: dict[str, str], *, controller_pid: int, users: Mapping[str, str] | None = None) -> SharedBroker:
    """Returns the broker of this run. Starts the broker if no other worker has started it. The broker ends with the process
    `controller_pid` at the latest. Raises `BrokerDidNotStart` or `TimeoutError`."""
    owner = Reaper(directory.name, after_pid=controller_pid)
    owner.add_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(directory):
            state_file = directory / STATE_FILE
            if not state_file.exists():
                _start_shared(directory, settings, owner, logins_of(users))
            state = json.loads(state_file.read_text())
    finally:
        owner.close()  # from now on the reaper waits for the controller alone
    logins = logins_of(users, administrator_password=state["administrator"])
    return SharedBroker(state["bootstrap"], state["pid"], directory / "data", logins)


def _start_shared(directory: Path, settings: dict[str, str], owner: Reaper, logins: Logins | None) -> None:
    """Starts the broker and writes its address and the administrator's password to a file for the other workers."""
    protocol = "PLAINTEXT"
    if logins is not None:
        settings, protocol = logins.settings(settings), logins.protocol
    process = BrokerProcess(directory / "data", directory / LOG_FILE, settings, protocol=protocol, reaped_by=owner)
    host, port = process.start()
    broker = SharedBroker(f"{host}:{port}", process.pid, directory / "data", logins)
    broker._store_logins()
    broker.close()
    password = "" if logins is None else logins.passwords[ADMINISTRATOR]
    state_file = directory / STATE_FILE
    state_file.touch(0o600)
    state_file.write_text(json.dumps({"bootstrap": broker.direct_server, "pid": process.pid, "administrator": password}))
    process.forget()


def stop_shared(directory: Path) -> None:
    """Stops the shared broker and removes its directory. Called once, when every worker has ended."""
    state_file = directory / STATE_FILE
    if state_file.exists():
        pid = json.loads(state_file.read_text())["pid"]
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(pid, number)
            if has_ended(pid, time.monotonic() + STOP_SECONDS_MAX):
                break
    shutil.rmtree(directory, ignore_errors=True)


def has_ended(pid: int, deadline: float) -> bool:
    while is_there := _signal(pid, 0):
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    return not is_there


def _signal(pid: int, number: int) -> bool:
    """Sends a signal (0: none); returns whether the process still runs. A zombie does not."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    try:
        # The name, the second field, is in brackets and may contain blanks.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] != b"Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # the process has just ended, or the system has no /proc


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the lock in the directory during the block. Raises `TimeoutError`."""
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            lock(descriptor)
            return
        except OSError:
            if time.monotonic() > deadline:
                reason = f"another test process has been starting or copying the broker for {LOCK_SECONDS_MAX:g} s"
                raise TimeoutError(reason) from None
            time.sleep(POLL_SECONDS)
