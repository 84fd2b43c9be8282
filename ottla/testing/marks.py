"""Marks of a broker's state, and rewinding the broker to a mark.

A mark is a snapshot (`snapshot.py`) and the state of the broker's clock. To rewind, the broker is killed, and its data is replaced by the
snapshot. Then a process that has waited with all modules imported becomes the broker.
"""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from pathlib import Path
from typing import NamedTuple

from ottla.testing.process import BrokerProcess
from ottla.testing.snapshot import copy_data, new_snapshot, take_snapshot


class Mark(NamedTuple):
    """A state of a broker. The data is removed when this process ends."""

    data: Path
    clock_state: list[int | None]


class Marks:
    """The marks of one broker, and the process that waits for the next rewind."""

    def __init__(self) -> None:
        self._last: Mark | None = None
        self._spare: BrokerProcess | None = None

    def mark(self, process: BrokerProcess) -> Mark:
        """Keeps the broker's state. Each call makes another mark, and `rewind` accepts any of the marks."""
        if self._spare is None:
            self._spare = process.spare()
        data = take_snapshot(process.pid, process.data_dir, new_snapshot(None), is_suspended=process.is_suspended)
        self._last = Mark(data, process.time.state)
        return self._last

    def rewind(self, process: BrokerProcess, mark: Mark | None) -> BrokerProcess:
        """Kills the broker and starts it again in the state of a mark. With None it uses the mark of the last `mark` or `rewind`. Returns
        the new process. Raises `RuntimeError` without a mark.
        """
        mark = mark or self._last
        if mark is None:
            raise RuntimeError("there is no mark to go back to; call mark() first")
        new, self._spare = self._spare or process.spare(), None
        process.kill()
        data_dir = process.data_dir
        old = data_dir.with_name(f"{data_dir.name}-{uuid.uuid4().hex}")
        os.rename(data_dir, old)
        copy_data(mark.data, data_dir)
        new.time.begin(mark.clock_state)
        new.wait_until_ready()
        threading.Thread(target=shutil.rmtree, args=[old, True]).start()
        self._last = mark
        self._spare = new.spare()
        return new

    def close(self) -> None:
        """Ends the waiting process."""
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
