"""The offsets that a log directory keeps of its partitions: recovery points, high watermarks, log starts, clean offsets.

They are stored in Kafka's four checkpoint files, which identify a partition by topic name and number only. A topic that is deleted and
created again has the same name, and must not inherit the offsets of the old one (I41). Kafka's files have no field for a topic id, so
`ottla-checkpoint-topic-ids` holds the id of each name, one line a topic.

Invariant: a row of that file is written after all four files of its round. So an entry is valid only if the row of its topic has the wanted
topic id. Before a row is written, the entries of an older topic of that name are replaced or removed. If a round stopped before it wrote
the ids, its entries of a new topic have no row yet, and are ignored. That costs a longer recovery. An entry without a partition directory
is invalid too. A directory without the file of ids was written by Kafka or by an older version. `read_entries` then takes the ids from
`partition.metadata`, and writes the file.

`server/housekeeping.py` decides when to write. `recovery.py` uses the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.base.errors import StorageError
from ottla.base.ports import Disk
from ottla.base.types import TopicPartition
from ottla.base.uuids import uuid_from_text, uuid_to_text
from ottla.storage.small_files import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_lines,
    read_offsets,
    read_topic_id,
    write_lines,
    write_offsets,
)

TOPIC_IDS_FILE = "ottla-checkpoint-topic-ids"


class LogOffsets(NamedTuple):
    """The checkpointed offsets of one partition of the topic with this id."""

    topic_id: bytes
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    clean_offset: int = 0


Entries = Mapping[TopicPartition, LogOffsets]


def read_entries(disk: Disk, directory: str, report: Callable[[str], object]) -> dict[TopicPartition, LogOffsets]:
    """Returns the valid entries of a directory's checkpoints. Rewrites the files if there are invalid entries. A damaged file is reported
    and ignored."""
    names = frozenset(disk.listdir(directory))
    columns = [
        _read(disk, directory, name, report) for name in (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_OFFSET_FILE)
    ]
    keys = sorted({key for column in columns for key in column})
    ids = _read_ids(disk, directory, report)
    is_first_time = ids is None and bool(keys)
    if ids is None:
        ids = {key.topic: found for key in keys if str(key) in names and (found := read_topic_id(disk, f"{directory}/{key}"))}
    entries = {
        key: LogOffsets(ids[key.topic], *(column.get(key, 0) for column in columns))
        for key in keys
        if key.topic in ids and str(key) in names
    }
    if is_first_time or len(entries) < len(keys):
        try:
            write_entries(disk, directory, entries)
        except StorageError as error:  # the entries are valid although the files were not rewritten
            report(str(error))
    return entries


def write_entries(disk: Disk, directory: str, entries: Entries) -> None:
    """Writes all files of a round: Kafka's four, then the ids."""
    write_offsets(disk, f"{directory}/{RECOVERY_POINT_FILE}", {key: found.recovery_point for key, found in entries.items()})
    write_offsets(disk, f"{directory}/{HIGH_WATERMARK_FILE}", {key: found.high_watermark for key, found in entries.items()})
    starts = {key: found.log_start_offset for key, found in entries.items() if found.log_start_offset > 0}
    write_offsets(disk, f"{directory}/{LOG_START_FILE}", starts)
    clean = {key: found.clean_offset for key, found in entries.items() if found.clean_offset > 0}
    write_offsets(disk, f"{directory}/{CLEANER_OFFSET_FILE}", clean)
    ids = {key.topic: found.topic_id for key, found in entries.items()}
    write_lines(disk, f"{directory}/{TOPIC_IDS_FILE}", [f"{topic} {uuid_to_text(topic_id)}" for topic, topic_id in sorted(ids.items())])


def write_watermarks(disk: Disk, directory: str, watermarks: Mapping[TopicPartition, int]) -> None:
    """Writes only the high watermarks, between two rounds. They belong to the topic ids of the last round."""
    write_offsets(disk, f"{directory}/{HIGH_WATERMARK_FILE}", watermarks)


def _read(disk: Disk, directory: str, name: str, report: Callable[[str], object]) -> dict[TopicPartition, int]:
    try:
        return read_offsets(disk, f"{directory}/{name}")
    except StorageError as error:
        report(f"{error}; it is ignored and rebuilt")
        return {}


def _read_ids(disk: Disk, directory: str, report: Callable[[str], object]) -> dict[str, bytes] | None:
    try:
        rows = read_lines(disk, f"{directory}/{TOPIC_IDS_FILE}", lambda fields: (fields[0], uuid_from_text(fields[1])), 2)
    except StorageError as error:
        report(f"{error}; it is ignored and rebuilt")
        return None
    return dict(rows) if rows is not None else None
