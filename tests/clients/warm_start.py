"""Starts `ottla` in a process that has imported it before: importing is most of the processor time that the start of a broker takes.

A server process imports the broker once. For each start it forks a watcher, which forks the new process, reports its process id, waits for
it and reports its exit code. The new process has its own session, arguments, environment and output. Its working directory is the
repository's root. It runs `ottla.cli.main` as `python -m` would. Tests of the start itself (`tests/cli/broker`, `tests/testing`) use new
interpreters.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

PROGRAM = "ottla.cli.main"
ROOT = Path(__file__).resolve().parents[2]
_NUMBER = struct.Struct(">i")


class WarmProcess:
    """A process that a server has forked, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], *, stderr: IO[bytes], environment: Mapping[str, str]) -> None:
        """Starts the program; `stdout` has what it prints."""
        output, stdout = os.pipe()
        self._report, report = os.pipe()
        order = json.dumps({"arguments": list(arguments), "environment": dict(environment)}).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(_server_path(os.getpid()))
            socket.send_fds(connection, [_NUMBER.pack(len(order))], [stdout, stderr.fileno(), report])
            connection.sendall(order)
        os.close(stdout)
        os.close(report)
        self.stdout: IO[str] = os.fdopen(output, encoding="utf-8")
        self.returncode: int | None = None
        (self.pid,) = _NUMBER.unpack(os.read(self._report, _NUMBER.size))

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code once the process has ended; raises `subprocess.TimeoutExpired` if it runs longer."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(PROGRAM, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        with suppress(ProcessLookupError):  # it has just ended, and its exit code is on the way
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], seconds)[0]:
            (self.returncode,) = _NUMBER.unpack(os.read(self._report, _NUMBER.size))
            os.close(self._report)
        return self.returncode


@cache
def _server_path(pid: int) -> str:
    """Starts the server of this process, on first use; returns the path of its socket. It ends when this process ends."""
    assert pid == os.getpid(), "a forked child has its own server"
    command = [sys.executable, "-m", "tests.clients.warm_start"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True)
    assert server.stdin is not None and server.stdout is not None
    path = server.stdout.readline().strip()
    server.stdout.close()
    assert path, "the server has not started"

    def end() -> None:
        if os.getpid() == pid:
            server.stdin.close()  # type: ignore[union-attr]
            server.wait()

    atexit.register(end)
    return path


def serve() -> None:
    """Imports the program and starts a process for each order; returns in each new process. Ends when its standard input is closed."""
    import ottla.cli.broker.start
    import ottla.cli.output
    import ottla.cli.parser
    import ottla.server.app  # noqa: F401

    gc.collect()
    directory = tempfile.mkdtemp(prefix="ottla-warm-")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/socket")
    listener.listen(16)
    os.write(1, f"{directory}/socket\n".encode())
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            size, descriptors, _, _ = socket.recv_fds(connection, _NUMBER.size, 3)
            order = _received(connection, _NUMBER.unpack(size)[0])
        assert threading.active_count() == 1
        if os.fork() == 0:
            listener.close()
            _watch(*descriptors)
            _become(json.loads(order), *descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        _forget_ended()
    _forget_ended()
    shutil.rmtree(directory)
    sys.exit()


def _forget_ended() -> None:
    """Removes watchers that have ended from the table of processes."""
    with suppress(ChildProcessError):  # there is none
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the order is cut off"
        data += piece
    return data


def _watch(stdout: int, stderr: int, report: int) -> None:
    """Forks, and returns in the new process. The watcher reports process id and exit code, and does not return."""
    pid = os.fork()
    if pid == 0:
        return
    os.close(stdout)
    os.close(stderr)
    os.write(report, _NUMBER.pack(pid))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(BrokenPipeError):  # the process that asked for the start has ended before
        os.write(report, _NUMBER.pack(code))
    os._exit(0)


def _become(order: dict[str, Any], stdout: int, stderr: int, report: int) -> None:
    """Gives this process its session, arguments, environment and standard streams."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for descriptor in (stdout, stderr, report):
        os.close(descriptor)
    sys.argv = [PROGRAM, *order["arguments"]]
    os.environ.clear()
    os.environ.update(order["environment"])


if __name__ == "__main__":
    serve()
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
