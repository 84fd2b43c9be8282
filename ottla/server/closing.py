"""The end of a clean stop: every log is flushed and closed, every directory gets its checkpoints and the marker of a clean shutdown.

Nobody appends any more. The loop is let go in between, since there may be thousands of logs and somebody may ask whether the broker lives.
A log that fails takes its directory offline; the others are closed cleanly all the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from ottla.base.errors import StorageError
from ottla.base.turns import PIECE_MS
from ottla.server.log_directories import LogDirectoryState
from ottla.server.partitions import PartitionTable

log = logging.getLogger("ottla")

SYNC_AT_ONCE_MIN = 100
"""From so many logs on, a stop hands everything to the disk at once before it syncs file by file: new topics cost 10 ms a log otherwise."""


async def close_logs(partitions: PartitionTable) -> bool:
    """Whether all of them could be closed cleanly."""
    is_clean = True
    if partitions.count() >= SYNC_AT_ONCE_MIN:
        await asyncio.to_thread(os.sync)  # others' files go with it: who asks whether the broker lives must not wait for them
    piece_end = time.monotonic() + PIECE_MS / 1000
    for partition in partitions.all():
        if not partition.is_online:
            continue
        try:
            partition.log.close(clean=True)
        except StorageError as error:
            log.error("%s: %s", partition.topic_partition, error)
            partitions.directory_of(partition).go_offline(str(error))
            is_clean = False
        if time.monotonic() >= piece_end:
            await asyncio.sleep(0)
            piece_end = time.monotonic() + PIECE_MS / 1000
    return is_clean


def close_directory(directory: LogDirectoryState, partitions: PartitionTable) -> bool:
    """Whether its checkpoints could be written."""
    error = directory.plan_checkpoints(partitions.all())()
    if error is None:
        directory.close(is_clean=True)
    else:
        log.error("%s", error)
    return error is None
