"""Copies the stderr of Spark's Java process and of its Python workers to stderr, without lines that do not help the user.

Java warns at each start that Spark uses an incubator module, and no setting turns the warning off. A worker that is idle when Java ends
prints the traceback of a `BrokenPipeError`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

STDERR = 2
INCUBATOR = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
TRACEBACK = b"Traceback (most recent call last):\n"
TRACEBACK_BYTES_MAX = 64 * 1024
"""Limit of a traceback that is held until its last line has arrived, in bytes. A longer one is passed on in parts."""


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """Filters the stderr of processes that are started in the block, as long as they run. Does nothing if this process has no stderr."""
    with suppress(AttributeError, OSError):  # no stream, or a closed one
        sys.stderr.flush()
    try:
        original = os.dup(STDERR)
    except OSError:
        yield
        return
    reading, writing = os.pipe()
    os.dup2(writing, STDERR)  # inheritable, unlike the descriptors of the pipe
    os.close(writing)
    threading.Thread(target=_pass_on, args=(reading, os.dup(original)), name="ottla-java-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(original, STDERR)
        os.close(original)


def _pass_on(reading: int, original: int) -> None:
    """Copies lines until every process that writes them has ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(original, "wb", buffering=0) as out:
        for line in without_noise(lines):
            with suppress(OSError):  # the reader has ended; the writers must not block
                out.write(line)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines, each traceback as one piece."""
    held = b""
    for line in lines:
        if line == INCUBATOR:
            continue
        if line != TRACEBACK and not held:
            yield line
            continue
        if line == TRACEBACK and held:
            yield held
            held = b""
        held += line
        is_complete = line != TRACEBACK and not line.startswith(b" ")
        if is_complete or len(held) > TRACEBACK_BYTES_MAX:
            if not _is_of_idle_worker(held):
                yield held
            held = b""
    if held:
        yield held


def _is_of_idle_worker(traceback: bytes) -> bool:
    """Whether a worker found the connection to Java closed although it had no task."""
    last = traceback.rstrip(b"\n").rpartition(b"\n")[2]
    return b"pyspark/daemon.py" in traceback and b"outfile.flush()" in traceback and last.startswith(b"BrokenPipeError")
