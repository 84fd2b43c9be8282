"""The offsets at the start and the end of a batch, as the sink learns them on the driver.

Spark writes them into the query's offset log before the batch runs: `<checkpoint>/offsets/<batch id>` has the end, the entry before it the
start. A driver that cannot read the checkpoint as files (an object store) takes them from a rendezvous file on its host: the source leaves
there what Spark asks it to plan (`leave_range`). A batch without data is not planned, so the entry is marked once its batch is committed
(`mark_used`): found by the batch after it, it means that nothing moved. That way takes one source a group; that a source has another group
is known from the tasks (`source_groups.py`).

A stream that is used twice in a query, such as in a join with itself, has a line for each use, and both say the same. Two reads of a topic
each have their own offsets: of a partition at which they stand apart the lowest is committed, with a checksum of them all.

A query without an `ottla` source counts its batches instead (`decision.py`). A query with an `ottla` source of another group is refused,
as is one of whose `ottla` sources none has the sink's group: the sink commits the offsets of its own group alone. A source beside it that
has no group keeps its position in the checkpoint. Where neither sink nor sources have a group, all positions are there, and the batches are
counted in a group of the query's own (`group_of_query`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ottla.client import TopicPartition
from ottla.spark.decision import BatchRange, counted_range, is_replaced
from ottla.spark.errors import OffsetConflictError
from ottla.spark.offset_json import StoredOffsets, read_offsets, write_offsets
from ottla.spark.spool import is_alive, spool_root

__all__ = [
    "BatchRange", "find_batch_range", "find_last_batch", "find_query_id", "group_of_query", "is_used", "leave_range", "mark_used",
    "same_topics", "source_cluster",
]  # fmt: skip

OFFSET_LOG_VERSIONS = ("v1", "v2")
"""In the second each source has a name: Spark writes it for queries with named sources (`DataStreamReader.name`)."""

_NAME = re.compile(r"\A\w+:")
_NO_OFFSET = "-"


def find_batch_range(
    checkpoint: str | None, batch_id: int, *, group: str | None, sink_topic: str | None = None, seen_groups: Iterable[str] = ()
) -> BatchRange:
    """The range of a batch over all partitions of the query's `ottla` sources with this group; of a sink without one, its number.

    `checkpoint` is the sink's option `checkpointLocation`; `sink_topic` is where a query without any `ottla` source counts its
    batches, if the option says one. `seen_groups` are those of sources, not necessarily all, that the batch's tasks have seen.
    `OffsetConflictError` when the range cannot be found out, or source and sink have different groups.
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
    """The offsets that still hold, also those of partitions that were gone and may be back: without those of topics that were deleted and
    created anew since then."""
    return {
        partition: offset
        for partition, offset in {**before.gone, **before.offsets}.items()
        if not is_replaced(before.topic_ids.get(partition.topic, ""), topic_ids.get(partition.topic, ""))
    }


def find_query_id(checkpoint: str | None) -> str | None:
    """The id of a query, the same over all of its restarts; None when the checkpoint cannot be read as files."""
    directory = local_path(checkpoint)
    try:
        return None if directory is None else str(json.loads((directory / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_last_batch(checkpoint: str | None) -> int | None:
    """Returns the number of the last batch in the offset log, which is running or done; None if there is none, or no log to be read."""
    directory = local_path(checkpoint)
    try:
        names = [] if directory is None else os.listdir(directory / "offsets")
    except OSError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)


def group_of_query(query_id: str) -> str:
    """The group in which a query counts its batches that has not been given one."""
    return f"ottla-query-{query_id}"


def local_path(checkpoint: str | None) -> Path | None:
    """The directory of a checkpoint: a plain path or a `file:` URI; None for another file system."""
    if not checkpoint:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(checkpoint)


# The offset log


class _Logged(NamedTuple):
    """An entry of the offset log as the sink's group sees it; see `BatchRange`."""

    offsets: StoredOffsets
    apart: str


def _read_log(offsets: Path, batch_id: int, group: str) -> _Logged | None:
    """The group's offsets in an entry, empty when no source of the query is of this group; None when there is no such entry."""
    try:
        lines = (offsets / str(batch_id)).read_text().splitlines()
    except OSError:
        return None
    if not lines or lines[0] not in OFFSET_LOG_VERSIONS:
        raise OffsetConflictError(
            f"checkpointLocation: {offsets / str(batch_id)} is of a format that is not known here: {lines[0] if lines else 'empty'}"
        )
    known = [one for one in _sources(lines) if one.group == group]
    return _Logged(_merged(group, known), _checksum(known) if _are_apart(known) else "")


def _sources(lines: Sequence[str]) -> list[StoredOffsets]:
    """The offsets of the query's `ottla` sources in an entry, in an order that stays the same from entry to entry."""
    texts = lines[2:] if lines[0] == OFFSET_LOG_VERSIONS[0] else sorted(lines[2:])
    found = (read_offsets(_NAME.sub("", text, count=1)) for text in texts if not text.endswith(_NO_OFFSET))
    return [one for one in found if one is not None]


def _merged(group: str, sources: Sequence[StoredOffsets]) -> StoredOffsets:
    """The offsets of all sources; of a partition that several read, the lowest."""
    merged = StoredOffsets(group, {}, {})
    gone: dict[TopicPartition, int] = {}
    for one in sources:
        for partition, offset in one.offsets.items():
            merged.offsets[partition] = min(offset, merged.offsets.get(partition, offset))
        merged.topic_ids.update(one.topic_ids)
        gone.update(one.gone)
    return merged._replace(gone=gone)


def _are_apart(sources: Sequence[StoredOffsets]) -> bool:
    """Whether two sources that read a partition do not stand at the same offsets throughout."""
    return any(one.offsets != other.offsets and not one.offsets.keys().isdisjoint(other.offsets) for one, other in combinations(sources, 2))


def _checksum(sources: Sequence[StoredOffsets]) -> str:
    """The same for the same offsets of the same sources, in their order."""
    text = json.dumps([sorted((*partition, offset) for partition, offset in one.offsets.items()) for one in sources])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _source_groups(offsets: Path, batch_id: int) -> list[str]:
    """The groups of the query's `ottla` sources. One whose pattern matches no topic yet has a group and no offsets."""
    try:
        return sorted({one.group for one in _sources((offsets / str(batch_id)).read_text().splitlines())})
    except OSError:
        return []


def _check_no_group(groups: Iterable[str]) -> None:
    """`OffsetConflictError` if a source has a group and the sink has none."""
    named = sorted({*groups} - {""})
    if named:
        raise OffsetConflictError(
            f"group: the sink has none, the query's sources of format ottla have {', '.join(map(repr, named))}; set the option in the sink "
            "too, since its offsets are committed with the output, or in none of them"
        )


def _check_seen(seen: Iterable[str], group: str) -> None:
    """`OffsetConflictError` if one of the groups that were seen is another than the sink's."""
    named = {*seen} - {""}
    if named - {group}:
        _check_groups(sorted(named), group)


def _check_groups(groups: Sequence[str], group: str) -> None:
    """`OffsetConflictError` if a source has a group that the sink does not commit, or none of the sources has the sink's group."""
    others = [other for other in groups if other not in ("", group)]
    if group in groups and others:
        named = ", ".join(map(repr, sorted([group, *others])))
        raise OffsetConflictError(
            f"group: the query's sources of format ottla have the groups {named}, and the sink would commit the offsets of {group!r} "
            f"alone; set the option to {group!r} in all of them, or leave it out of a source whose position the checkpoint alone is to have"
        )
    if groups and group not in groups:
        named = ", ".join(repr(other) for other in groups) if any(groups) else "no group"
        raise OffsetConflictError(
            f"group: the sink has group {group!r}, the query's sources of format ottla have {named}; set the option to the same group in "
            "the sink and in (one of) the sources, since its offsets are committed with the output"
        )


# The rendezvous file


class _Entry(NamedTuple):
    """What is in a rendezvous file. `used_by` is the last batch that was committed with it, None before.

    `left_by` is the process of the source, `cluster` the id of the cluster that it reads. `is_of_several` when several sources left ranges
    for the same batch that are not the same.
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
    """Leaves the range that is being planned for the sink of the same group on this host, and the id of the source's cluster."""
    before = _read_entry(group)
    planned = BatchRange(start, end, topic_ids or {})
    is_of_several = before is not None and before.used_by is None and _is_of_another_source(before, planned)
    _write_entry(group, _Entry(planned, None, is_of_several, os.getpid(), cluster))


def _is_of_another_source(before: _Entry, planned: BatchRange) -> bool:
    """Whether a range was left by another source of the query: it has other topics, or is another range by a process that still runs."""
    topics, found = _topics(before.range.end), _topics(planned.end)
    if topics != found and not topics & found:
        return True
    is_same = (before.range.start, before.range.end) == (planned.start, planned.end)
    return not is_same and 0 < before.left_by != os.getpid() and is_alive(before.left_by)


def mark_used(group: str, batch_id: int) -> None:
    """Notes that the range was committed as this batch, so that the next one, if it has no data, does not take it for its own."""
    left = _read_entry(group)
    if left is not None:
        _write_entry(group, left._replace(used_by=batch_id))


def is_used(group: str) -> bool:
    """Whether a sink has committed the range that this process left last; True too if another process left it, or it cannot be read."""
    left = _read_entry(group)
    return left is None or left.used_by is not None or left.left_by != os.getpid()


def source_cluster(group: str) -> str:
    """The id of the cluster that the group's source reads; empty if it has planned nothing on this host, or runs no more."""
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
    path = _entry_path(group)
    handle, name = tempfile.mkstemp(prefix="range-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file)
    os.replace(name, path)


def _entry_path(group: str) -> Path:
    return spool_root() / f"{hashlib.sha256(group.encode()).hexdigest()[:24]}.range"
