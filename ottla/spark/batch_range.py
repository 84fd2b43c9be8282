"""Finds the source offsets at the start and the end of a Spark micro-batch, for the sink on the driver, which commits them.

Spark writes the end of a batch into the query's offset log, `<checkpoint>/offsets/<batch id>`, before the batch runs; the previous entry is
its start. If the driver cannot read the checkpoint as files (an object store), the sink reads a rendezvous file on its host instead. The
source writes this file when Spark plans a batch (`leave_range`), and the sink marks it after the commit (`mark_used`). Spark does not plan
a batch without data, so a batch that finds a marked file has no new offsets. A rendezvous file supports one source per group. If the
checkpoint cannot be read, only the tasks can notice that another source of the query has another group (`source_groups.py`).

If a query uses the same stream twice, as in a join with itself, both uses have the same offsets. Two separate reads of a topic each have
their own offsets. If these offsets differ in a partition, or one read has more partitions, the lowest offset of each partition is
committed, with a checksum of all offsets.

A query without an `ottla` source counts its batches instead (`decision.py`). At least one source must have the sink's group. A source with
another group is refused, because the sink commits only the offsets of its own group. A source without a group keeps its position in the
checkpoint. If neither sink nor sources have a group, the sink counts the batches in a group that belongs to this query only
(`group_of_query`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ottla.client import TopicPartition
from ottla.spark.decision import BatchRange, counted_range, is_replaced
from ottla.spark.errors import OffsetConflictError
from ottla.spark.local_files import is_alive, replace_file
from ottla.spark.offset_json import StoredOffsets, read_offsets, write_offsets
from ottla.spark.spool import spool_root

__all__ = [
    "BatchRange", "find_batch_range", "find_last_batch", "find_query_id", "group_of_query", "is_used", "leave_range", "mark_used",
    "same_topics", "source_cluster",
]  # fmt: skip

OFFSET_LOG_VERSIONS = ("v1", "v2")
"""Version 2 has a name for each source: Spark writes it for queries with named sources (`DataStreamReader.name`)."""

_NAME = re.compile(r"\A\w+:")
_NO_OFFSET = "-"


def find_batch_range(
    checkpoint: str | None, batch_id: int, *, group: str | None, sink_topic: str | None = None, seen_groups: Iterable[str] = ()
) -> BatchRange:
    """Returns the range of a batch over all partitions of the query's `ottla` sources with this group. If the sink has no group or the
    query has no `ottla` source, the range is the batch number.

    `checkpoint` is the sink's option `checkpointLocation`. `sink_topic` is the sink's option `topic`; its partition 0 counts the batches.
    `seen_groups` are groups of sources that the batch's tasks have seen, possibly not all. Raises `OffsetConflictError` if the range cannot
    be determined, or source and sink have different groups.
    """
    directory = local_path(checkpoint)
    if group is None:
        _check_no_group(seen_groups if directory is None else {*seen_groups, *_source_groups(directory / "offsets", batch_id)})
        return counted_range(batch_id, sink_topic)
    log = None if directory is None else _read_log(directory / "offsets", batch_id, group)
    if log is None:
        _check_seen(seen_groups, group)
        return _from_rendezvous(checkpoint, batch_id, group)
    assert directory is not None
    groups = _source_groups(directory / "offsets", batch_id)
    _check_groups(groups, group)
    if not groups:
        return counted_range(batch_id, sink_topic)
    end, apart = log
    if batch_id > 0:
        before = _read_log(directory / "offsets", batch_id - 1, group)
        if before is None:
            return BatchRange(None, end.offsets, end.topic_ids, ("", apart))
        return BatchRange(same_topics(before.offsets, end.topic_ids), end.offsets, end.topic_ids, (before.apart, apart))
    left = _read_entry(group)
    start = left.range.start if left is not None and left.range.end == end.offsets and not apart else None
    return BatchRange(start, end.offsets, end.topic_ids, ("", apart))


def same_topics(before: StoredOffsets, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Returns the offsets in `before`, and the last offsets of partitions that were missing then. Omits topics that were deleted and
    created again since.
    """
    return {
        partition: offset
        for partition, offset in {**before.gone, **before.offsets}.items()
        if not is_replaced(before.topic_ids.get(partition.topic, ""), topic_ids.get(partition.topic, ""))
    }


def find_query_id(checkpoint: str | None) -> str | None:
    """Returns the id of a query, which stays the same over restarts; None if the checkpoint cannot be read as files."""
    directory = local_path(checkpoint)
    try:
        return None if directory is None else str(json.loads((directory / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_last_batch(checkpoint: str | None) -> int | None:
    """Returns the number of the last batch in the offset log, whether it still runs or is done. Returns None if there is no batch or the
    log cannot be read.
    """
    directory = local_path(checkpoint)
    try:
        names = [] if directory is None else os.listdir(directory / "offsets")
    except OSError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)


def group_of_query(query_id: str) -> str:
    """Returns the group for counting the batches of a query without a group."""
    return f"ottla-query-{query_id}"


def local_path(checkpoint: str | None) -> Path | None:
    """Returns the directory of a checkpoint (a plain path or a `file:` URI); None for another file system or without a checkpoint."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(checkpoint)


# The offset log


class _Logged(NamedTuple):
    offsets: StoredOffsets
    apart: str


def _read_log(offsets: Path, batch_id: int, group: str) -> _Logged | None:
    """Returns the group's offsets in an entry, empty if no source has this group; None if the entry cannot be read. Raises
    `OffsetConflictError` for an unknown format."""
    try:
        lines = (offsets / str(batch_id)).read_text().splitlines()
    except OSError:
        return None
    if not lines or lines[0] not in OFFSET_LOG_VERSIONS:
        raise OffsetConflictError(
            f"checkpointLocation: {offsets / str(batch_id)} has an unknown format: {lines[0] if lines else 'empty'}"
        )
    known = [one for one in _sources(lines) if one.group == group]
    return _Logged(_merged(group, known), _checksum(known) if _are_apart(known) else "")


def _sources(lines: Sequence[str]) -> list[StoredOffsets]:
    """Returns the offsets of the query's `ottla` sources in an entry, in the same order in every entry."""
    texts = lines[2:] if lines[0] == OFFSET_LOG_VERSIONS[0] else sorted(lines[2:])
    found = (read_offsets(_NAME.sub("", text, count=1)) for text in texts if not text.endswith(_NO_OFFSET))
    return [one for one in found if one is not None]


def _merged(group: str, sources: Sequence[StoredOffsets]) -> StoredOffsets:
    """Returns the lowest offset of each partition."""
    merged = StoredOffsets(group, {}, {})
    gone: dict[TopicPartition, int] = {}
    for one in sources:
        for partition, offset in one.offsets.items():
            merged.offsets[partition] = min(offset, merged.offsets.get(partition, offset))
        merged.topic_ids.update(one.topic_ids)
        gone.update(one.gone)
    return merged._replace(gone=gone)


def _are_apart(sources: Sequence[StoredOffsets]) -> bool:
    """Whether two sources share a partition and differ in an offset or in their partitions."""
    return any(one.offsets != other.offsets and not one.offsets.keys().isdisjoint(other.offsets) for one, other in combinations(sources, 2))


def _checksum(sources: Sequence[StoredOffsets]) -> str:
    text = json.dumps([sorted((*partition, offset) for partition, offset in one.offsets.items()) for one in sources])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source_groups(offsets: Path, batch_id: int) -> list[str]:
    """Returns the groups of the query's `ottla` sources, also of a source whose pattern matches no topic yet."""
    try:
        return sorted({one.group for one in _sources((offsets / str(batch_id)).read_text().splitlines())})
    except OSError:
        return []


def _check_no_group(groups: Iterable[str]) -> None:
    named = sorted({*groups} - {""})
    if named:
        raise OffsetConflictError(
            f"group: the sink has none, the query's sources of format ottla have {', '.join(map(repr, named))}; set the option in the sink "
            "too, since its offsets are committed with the output, or in none of them"
        )


def _check_seen(seen: Iterable[str], group: str) -> None:
    named = {*seen} - {""}
    if named - {group}:
        _check_groups(sorted(named), group)


def _check_groups(groups: Sequence[str], group: str) -> None:
    others = [other for other in groups if other not in ("", group)]
    if group in groups and others:
        named = ", ".join(map(repr, sorted([group, *others])))
        raise OffsetConflictError(
            f"group: the query's sources of format ottla have the groups {named}, and the sink would commit the offsets of {group!r} "
            f"alone; set the option to {group!r} in all of them, or remove it from a source that keeps its position only in the checkpoint"
        )
    if groups and group not in groups:
        named = ", ".join(repr(other) for other in groups) if any(groups) else "no group"
        raise OffsetConflictError(
            f"group: the sink has group {group!r}, the query's sources of format ottla have {named}; set the option to the same group in "
            "the sink and in (one of) the sources, since its offsets are committed with the output"
        )


# The rendezvous file


class _Entry(NamedTuple):
    """The contents of a rendezvous file. `used_by` is the last batch committed with it, if any.

    `left_by` is the source's process, `cluster` the id of the cluster that it reads. `is_of_several` says that several sources wrote
    different ranges for the same batch.
    """

    range: BatchRange
    used_by: int | None
    is_of_several: bool
    left_by: int
    cluster: str = ""


def leave_range(
    group: str,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str] | None = None,
    *,
    cluster: str = "",
) -> None:
    """Writes the planned range, and the id of the source's cluster, for the sink of the same group on this host."""
    before = _read_entry(group)
    planned = BatchRange(start, end, topic_ids or {})
    is_of_several = before is not None and before.used_by is None and _is_of_another_source(before, planned)
    _write_entry(group, _Entry(planned, None, is_of_several, os.getpid(), cluster))


def _is_of_another_source(before: _Entry, planned: BatchRange) -> bool:
    """Whether another source of the query wrote the entry: its topics are all different, or another running process wrote another range."""
    topics, found = _topics(before.range.end), _topics(planned.end)
    if topics != found and not topics & found:
        return True
    is_same = (before.range.start, before.range.end) == (planned.start, planned.end)
    return not is_same and 0 < before.left_by != os.getpid() and is_alive(before.left_by)


def mark_used(group: str, batch_id: int) -> None:
    """Records that the range was committed as this batch, so that a later batch without data does not use it again."""
    left = _read_entry(group)
    if left is not None:
        _write_entry(group, left._replace(used_by=batch_id))


def is_used(group: str) -> bool:
    """Whether a sink has committed this process's last range. Also True if another process wrote the entry or it cannot be read."""
    left = _read_entry(group)
    return left is None or left.used_by is not None or left.left_by != os.getpid()


def source_cluster(group: str) -> str:
    """Returns the id of the cluster that the group's source reads, or an empty text if no running source has planned a batch on this host.
    """
    left = _read_entry(group)
    return left.cluster if left is not None and left.left_by and is_alive(left.left_by) else ""


def _from_rendezvous(checkpoint: str | None, batch_id: int, group: str) -> BatchRange:
    left = _read_entry(group)
    if left is not None and left.is_of_several:
        raise OffsetConflictError(
            f"checkpointLocation: several sources of the query have the option group={group!r}, which needs a checkpoint that can be read "
            f"as files here; {checkpoint!r} cannot"
        )
    if left is not None and left.used_by in (None, batch_id):
        return left.range
    if left is not None and left.used_by == batch_id - 1:
        return left.range._replace(start=left.range.end)
    raise OffsetConflictError(
        f"group: the range of batch {batch_id} cannot be found: checkpointLocation {checkpoint!r} cannot be read as files here, and no "
        f"source of the query with the option group={group!r} has planned it on this host"
    )


def _topics(offsets: Mapping[TopicPartition, int]) -> set[str]:
    return {partition.topic for partition in offsets}


def _read_entry(group: str) -> _Entry | None:
    try:
        value: Any = json.loads(_entry_path(group).read_text())
        start, end = read_offsets(value["start"]), read_offsets(value["end"])
        used_by, is_of_several, left_by = value["used_by"], value["several"], int(value.get("left_by", 0))
        cluster = str(value.get("cluster", ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if start is None or end is None:
        return None
    planned = BatchRange(start.offsets, end.offsets, end.topic_ids)
    return _Entry(planned, used_by if isinstance(used_by, int) else None, bool(is_of_several), left_by, cluster)


def _write_entry(group: str, entry: _Entry) -> None:
    value = {
        "start": write_offsets(group, entry.range.start or {}),
        "end": write_offsets(group, entry.range.end, entry.range.topic_ids),
        "used_by": entry.used_by,
        "several": entry.is_of_several,
        "left_by": entry.left_by,
        "cluster": entry.cluster,
    }
    replace_file(_entry_path(group), json.dumps(value))


def _entry_path(group: str) -> Path:
    return spool_root() / f"{hashlib.sha256(group.encode()).hexdigest()[:24]}.range"
