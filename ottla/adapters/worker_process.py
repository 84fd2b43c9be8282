"""A worker process for CPU-intensive work: takes one order at a time and returns its answer.

The process runs `main()` of a module of this package, with pipes as stdin and stdout. Unlike a fork it inherits no locks that other threads
of the broker hold. The first order starts it. If it has died, the next order fails, and the order after that starts it again. Orders and
answers are pickled, which is safe because both processes run this program. `serve` is the worker's side. It ends the process as soon as its
stdin closes, so a worker never outlives the broker.
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
"""Niceness of the worker, so that the broker gets the CPU core first."""


class WorkerProcess:
    """The broker's side. `ask` blocks, so it is called in a thread; `close` may be called in another thread meanwhile."""

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
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            end(process)

    def close(self) -> None:
        """Ends the process permanently. If it is working, it is killed and `ask` raises `WorkerLost`."""
        with self._guard:
            self._is_closed = True
            if self._process is not None and self._is_asked:
                self._process.kill()  # `ask` then raises `WorkerLost`
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
    """Starts the same Python interpreter with this package on its path, whatever the working directory."""
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
            pass  # the pipe has unsent bytes, and the process has ended


def serve(work: Callable[[Any], object]) -> None:
    """Answers orders until stdin closes. Then the process ends immediately, even in the middle of an order."""
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
