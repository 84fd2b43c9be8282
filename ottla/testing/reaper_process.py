"""The reaper's process: reads a list of directories and processes, waits for the end of its input, then kills the processes and removes the
directories.

    python -I -S reaper_process.py TOKEN PID

Each line of the input is `+directory PATH`, `-directory PATH`, `+process PID` or `-process PID`. If the argument PID is not 0, the reaper
also waits for the end of that process before it cleans up. If the system has /proc, the reaper kills every process with the token in its
environment, including a process that was started just before the end; otherwise it kills the listed processes. It is a separate script with
few imports, so that it starts fast.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

TOKEN_VARIABLE = "OTTLA_REAPER"
POLL_SECONDS = 0.02
END_SECONDS_MAX = 10.0


def main(token: str, pid: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C and a closed terminal reach all processes; this one must outlive them
    os.chdir("/")
    named = read_orders()
    if pid:
        wait_for_end(pid)
    kill_all(token, [int(text) for text in named["process"]])
    for directory in named["directory"]:
        shutil.rmtree(directory, ignore_errors=True)


def read_orders() -> dict[str, list[str]]:
    """Reads the input to its end. Returns the directories and processes that were added and not withdrawn."""
    named: dict[str, list[str]] = {"directory": [], "process": []}
    for line in sys.stdin.buffer:
        kind, _, text = os.fsdecode(line.rstrip(b"\n")).partition(" ")
        found = named[kind[1:]]
        if kind[0] == "+":
            found.append(text)
        elif text in found:
            found.remove(text)
    return named


def wait_for_end(pid: int) -> None:
    """Waits until the process has ended. On Linux a zombie counts as ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):
        while is_there(pid):
            time.sleep(POLL_SECONDS)
        return
    select.select([descriptor], [], [])
    os.close(descriptor)


def kill_all(token: str, named: list[int]) -> None:
    """Sends SIGKILL until no process is left, for `END_SECONDS_MAX` at most: a process may have started another one in the meantime."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while time.monotonic() < deadline:
        found = with_token(token) if os.path.isdir("/proc/self") else [pid for pid in named if is_there(pid)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # the process has just ended
        time.sleep(POLL_SECONDS)


def with_token(token: str) -> list[int]:
    """Returns the other processes with the token in their environment. Ended processes have no environment."""
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    is_ours = wanted in file.read().split(b"\0")
            except OSError:
                continue  # the process is another user's, or has just ended
            if is_ours:
                found.append(int(name))
    return found


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
