"""A worker process for work that needs much CPU: takes one order at a time and returns its answer.

The process runs `main()` of a module of this package, with pipes for stdin and stdout; unlike a fork it copies no thread and no lock of the
broker. It is started with the first order and again after it has died. Orders and answers are pickled; both ends are this program. The
worker's side is `serve`: it ends at once when its stdin closes, so it never outlives the broker, however that ended.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from ottla.base.ports import WorkerLost

NICENESS = 5
"""The worker's niceness: the broker goes first where both want the same core."""


class WorkerProcess:
    """The broker's end. `ask` blocks, so it is for a thread; `close` may be called from another one meanwhile."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._is_asked = False
        self._guard = threading.Lock()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ask(self, order: object) -> Any:
        """The worker's answer. Raises `WorkerLost`."""
        process = self._running()
        self._is_asked = True
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(order, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            self.rest()
            raise WorkerLost(f"the worker process {process.pid} ended before its work did") from error
        finally:
            self._is_asked = False

    def rest(self) -> None:
        """Ends the process; the next order starts another one."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            end(process)

    def close(self) -> None:
        """Ends the process for good, in the middle of its work if need be: `ask` then raises."""
        with self._guard:
            self._is_closed = True
            if self._process is not None and self._is_asked:
                self._process.kill()  # the caller that waits for the answer ends with an error
                return
        self.rest()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._is_closed:
                raise WorkerLost("the broker is stopping")
            if self._process is None:
                try:
                    self._process = start(self._module)
                except OSError as error:
                    raise WorkerLost(f"cannot start a worker process: {error.strerror}") from error
            return self._process


def start(module: str) -> subprocess.Popen[bytes]:
    """A Python of the same kind that finds the same package, wherever the broker was started from."""
    package_parent = str(Path(__file__).resolve().parents[2])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:
            pass  # what was still in the buffer is not read any more


def serve(work: Callable[[Any], object]) -> None:
    """The worker's end: answers orders until stdin closes, which ends the process whatever it is doing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the broker, which then closes the pipe
    os.nice(NICENESS)
    orders: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=receive, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        pickle.dump(work(orders.get()), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def receive(stream: BinaryIO, orders: SimpleQueue[Any]) -> None:
    while True:
        try:
            order = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            os._exit(0)
        orders.put(order)
