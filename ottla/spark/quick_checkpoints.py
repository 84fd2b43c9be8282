"""Writes the checkpoint of a query on a local disk with half the processes.

Spark writes two small files for each batch. Hadoop's usual file system for local paths adds a file with a checksum to each, and starts
`chmod` for all four. Its file system without checksums starts it twice.

Spark's RocksDB state store needs the usual file system, so queries with that store keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.spark.session import CHECKPOINT_MANAGER
from ottla.spark.spark_versions import LOCAL_CHECKPOINTS

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
FILE_SYSTEM = "fs.file.impl"
SETTINGS = {
    FILE_SYSTEM: "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # the cached one was made with the session's settings
}


@contextmanager
def quick_checkpoints(session: Any) -> Iterator[None]:
    """Gives a query that is started in the block Hadoop's plain local file system, if its session has `LOCAL_CHECKPOINTS`. Spark copies the
    session's settings when a query starts, so other queries and files are not affected."""
    settings = session.conf
    if (
        settings.get(CHECKPOINT_MANAGER, "") != LOCAL_CHECKPOINTS
        or "RocksDB" in settings.get(STATE_STORE, "")
        or settings.get(FILE_SYSTEM, "")
    ):
        yield
        return
    for name, value in SETTINGS.items():
        settings.set(name, value)
    try:
        yield
    finally:
        for name in SETTINGS:
            settings.unset(name)
