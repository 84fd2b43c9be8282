"""Shows the writing tasks of a query the groups of the query's sources, through small files on the host that the reading tasks write.

The checkpoint's offset log has the groups too, but the driver cannot read it in an object store (`batch_range.py`). A reading task
therefore records its group under the query's run id, and a writing task sends the groups found on its host in its commit message. Spark
chooses the hosts of tasks; if reading and writing tasks run on different hosts, a group may remain unseen.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from pyspark import TaskContext

from ottla.spark.local_files import replace_file
from ottla.spark.spool import NOTE_SUFFIX, spool_root

_RUN = "spark.jobGroup.id"
"""The local property of a task with the id of the query's run; a batch job has it only if the user sets it."""

RUN_LETTERS = 8
"""Letters of a run's id in the metadata of committed offsets: 32 bits of a random UUID, which Spark's log has in full."""


def leave_group(group: str | None) -> None:
    """Records the group of the source that the running task reads; does nothing outside of a query's task."""
    run = _run_of_task()
    if run is None:
        return
    path = _prefixed(run) + hashlib.sha256((group or "").encode()).hexdigest()[:16] + NOTE_SUFFIX
    try:
        os.utime(path)
    except OSError:
        replace_file(Path(path), group or "")


def find_groups() -> tuple[str, ...]:
    """Returns the groups that tasks on this host have recorded for the current query's run; a source without a group has an empty one."""
    run = _run_of_task()
    if run is None:
        return ()
    path = Path(_prefixed(run))
    found = []
    for one in path.parent.glob(f"{path.name}*{NOTE_SUFFIX}"):
        try:
            found.append(one.read_text())
        except OSError:
            pass  # another process has just removed it
    return tuple(sorted(found))


def run_of_task() -> str:
    """Returns the start of the id of the query's run, which differs from the start of other runs' ids; empty outside of a query's task."""
    return (_run_of_task() or "")[:RUN_LETTERS]


def _run_of_task() -> str | None:
    task = TaskContext.get()
    return None if task is None else task.getLocalProperty(_RUN)


def _prefixed(run: str) -> str:
    return str(spool_root() / f"{hashlib.sha256(run.encode()).hexdigest()[:24]}.")
