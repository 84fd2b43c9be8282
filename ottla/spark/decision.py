"""Decides whether a batch is committed, still to be sent, or in conflict, by comparing its range with the group's committed offsets.

If the committed offsets equal the batch's start, the batch is to be sent. If they equal its end, the batch is done. Anything else is a
conflict. A batch whose start equals its end moves no offset (a watermark closed windows, or another source had the data). Then this module
compares the query and batch that are named in the metadata of the committed offsets. It also compares the metadata if several sources of
the query read a partition at different offsets, because one committed offset cannot represent all of them.

Some queries have no source whose offsets the group could store: they read files, the rate source, or topics without a group. For such a
query the group's offset of one partition counts the batches: batch n moves it from n to n + 1, in the transaction with the output. The
batches are counted in partition 0 of the sink's topic. If rows name their topics in a column, the first batch with output chooses partition
0 of its alphabetically first topic, and later batches find this partition in the group's offsets. Until the first output, batches commit
nothing.

The caller must read the committed offsets after InitProducerId, so that no transaction of an earlier driver can still change them.

The committed metadata also counts restarts: a batch of another run than the last committed one adds one. This decides nothing.

A pipeline that writes a table has its offsets in the table's log instead (`tables/`), in the same form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ottla.client import Committed, TopicPartition
from ottla.spark.commit_metadata import CommitMetadata, parse_metadata
from ottla.spark.errors import OffsetConflictError

BatchOffsets = Mapping[TopicPartition, int]

_NAMED_MAX = 5
"""Partitions that a message lists; the rest is counted."""


class BatchRange(NamedTuple):
    """The offsets of all partitions of the source at the start and at the end of a batch.

    A partition missing in `start` is new in this batch, as are partitions of a topic that was deleted and created again since the previous
    batch. `start` is None if it is unknown; then only the first batch of a checkpoint can be decided. `topic_ids` are the known ids at the
    end of the batch. If several sources read a partition, `start` and `end` have the lowest offset of these sources. If the sources are at
    different offsets, `apart` has two checksums: of all offsets at the start, and of all offsets at the end. `is_counted` means that no
    source has the group: the range is then from the batch number to the next number (`counted_range`).
    """

    start: BatchOffsets | None
    end: BatchOffsets
    topic_ids: Mapping[str, str] = MappingProxyType({})
    apart: tuple[str, str] = ("", "")
    is_counted: bool = False


class PlannedBatch(NamedTuple):
    """A batch to compare: its query and number, its range, and whether it has output. `trusts_checkpoint`: missing offsets of the group are
    not a conflict. `table` is the location of the table whose log has the offsets, empty if the group has them. `run` and `restarts` as in
    `CommitMetadata`.
    """

    group: str
    query_id: str
    batch_id: int
    range: BatchRange
    has_output: bool = True
    trusts_checkpoint: bool = False
    table: str = ""
    run: str = ""
    restarts: int = 0


def decide(
    batch: PlannedBatch, committed: Mapping[TopicPartition, Committed], targets: Collection[TopicPartition]
) -> tuple[PlannedBatch, bool]:
    """Returns the batch, with its partition for counting if it needs one and the number of restarts, and whether it is committed. `targets`
    are the partitions with output. Raises `OffsetConflictError`."""
    if batch.range.is_counted and not batch.range.end:
        batch = place_count(batch, committed, targets)
    check_query(batch, committed)
    return _with_restarts(batch, committed), is_committed(batch, committed)


def _with_restarts(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> PlannedBatch:
    """Returns the batch with the number of restarts. A batch without a task has no known run, and counts as one of the last run."""
    known = [found for one in committed.values() if (found := parse_metadata(one.metadata)) is not None and found.run]
    if not known:
        return batch
    last = max(known, key=lambda one: one.restarts)
    run = batch.run or last.run
    return batch._replace(run=run, restarts=last.restarts + (run != last.run))


def is_committed(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Whether the batch is committed; False means that it is to be sent. Raises `OffsetConflictError` if group and checkpoint disagree."""
    start, end, topic_ids, apart, _ = batch.range
    committed = {one: found for one, found in committed.items() if not _is_of_another_topic(one, found, topic_ids)}
    if not end:
        if batch.has_output:
            raise _conflict(batch, committed, "the batch has output, and its source has no partition to commit it with")
        return True
    if start is None:
        return _is_committed_first(batch, committed)
    if any(apart) and batch.batch_id > 0:
        return _is_committed_apart(batch, start, committed)
    at_start, at_end = _places(batch, start, committed)
    if at_start and at_end:
        raise _conflict(batch, committed, "some partitions are at the start of the batch and some at its end")
    if at_start or at_end:
        return at_end
    return _is_in_metadata(batch, committed)


def _is_of_another_topic(partition: TopicPartition, found: Committed, topic_ids: Mapping[str, str]) -> bool:
    """Whether an offset was committed for an earlier topic of this name. Such an offset is ignored, and the batch begins with the new
    topic."""
    metadata = parse_metadata(found.metadata)
    return is_replaced(metadata.topic_id if metadata is not None else "", topic_ids.get(partition.topic, ""))


def is_replaced(before: str, now: str) -> bool:
    """Whether two topic ids differ; an empty id is unknown."""
    return bool(before and now and before != now)


def _places(batch: PlannedBatch, start: BatchOffsets, committed: Mapping[TopicPartition, Committed]) -> tuple[bool, bool]:
    """Compares each partition that the batch moves. Returns whether the committed offset of any is the batch's start, and whether the
    committed offset of any is its end. A partition without a committed offset is treated as being at the start.

    Raises `OffsetConflictError` for an offset that is neither. It also raises it for a missing offset, unless the partition is new, the
    batch is the first one, or the checkpoint is trusted.
    """
    at_start = at_end = False
    for partition, end in batch.range.end.items():
        found, first = committed.get(partition), start.get(partition)
        if first is not None and first > end:
            raise _conflict(batch, committed, f"the batch ends before it starts in {partition}")
        if found is None:
            if first is not None and batch.batch_id > 0 and not batch.trusts_checkpoint:
                raise _conflict(batch, committed, _gone(batch, partition))
            at_start = at_start or first != end
        elif first == end and found.offset == end:
            continue
        elif found.offset == end:
            at_end = True
        elif found.offset == first:
            at_start = True
        else:
            raise _conflict(batch, committed, f"the offset of {partition} is neither the start nor the end of the batch")
    return at_start, at_end


def _is_in_metadata(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Like `is_committed`, for a batch that moves no offset: compares it with the newest batch in the metadata.

    Each commit covers all partitions that its batch had. If a partition was missing during later batches, its offset still has the metadata
    of an older batch.
    """
    found = _last_batches(batch, committed)
    numbers = [one.batch_id for one in found if one is not None and one.query_id == batch.query_id]
    newest = max(numbers) if numbers and len(numbers) == len(found) else None
    if newest is not None and newest >= batch.batch_id:
        return True
    if not found or batch.batch_id == 0 or newest == batch.batch_id - 1:
        return False
    known = ", ".join(sorted({"none" if one is None else f"batch {one.batch_id} of query {one.query_id}" for one in found}))
    raise _conflict(batch, committed, f"the batch moves no offset and does not follow the last committed batch: {known}")


def _is_committed_apart(batch: PlannedBatch, start: BatchOffsets, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Like `is_committed`, if sources of the same partition have different offsets before or after the batch. Offsets and metadata must
    equal either the batch's start or its end."""
    before, after = batch.range.apart
    end = batch.range.end
    offsets = {partition: found.offset for partition, found in committed.items() if partition in end}
    last = {None if one is None else (one.query_id, one.batch_id, one.apart) for one in _last_batches(batch, committed)}
    if last == {(batch.query_id, batch.batch_id, after)} and offsets == dict(end):
        return True
    if last == {(batch.query_id, batch.batch_id - 1, before)} and offsets == {one: at for one, at in start.items() if one in end}:
        return False
    if not offsets and batch.trusts_checkpoint:
        return False
    raise _conflict(batch, committed, "sources of the query read the same partition at different offsets, and another batch was the last")


def _is_committed_first(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Like `is_committed`, if the start is unknown. Raises `OffsetConflictError` if this is not the first batch of the checkpoint, or if
    the offsets do not show whether the batch is committed.
    """
    if batch.batch_id > 0:
        raise _conflict(batch, committed, f"the checkpoint's offset log has no entry {batch.batch_id - 1}")
    found = {partition: committed[partition].offset for partition in batch.range.end if partition in committed}
    if not found:
        return False
    if found == dict(batch.range.end):
        last = _last_batches(batch, committed)
        if all(one is not None and one.query_id == batch.query_id for one in last):
            return True
        if not batch.has_output:
            return False
    raise _conflict(batch, committed, "the start of the batch is not known, and without it nothing shows whether it was committed")


def _last_batches(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> set[CommitMetadata | None]:
    """Returns the different batches in the metadata of the committed offsets, and None among them if another program committed an offset.
    After a pipeline's commit all partitions name the same batch.
    """
    found = (parse_metadata(committed[partition].metadata) for partition in batch.range.end if partition in committed)
    return {None if one is None else one._replace(start=0, topic_id="") for one in found}


def _gone(batch: PlannedBatch, partition: TopicPartition) -> str:
    if batch.table:
        return (
            f"the table has no offset for {partition}: it was made again, or another table was meant; the option "
            "trustCheckpoint=true continues from the checkpoint"
        )
    return (
        f"the group no longer has an offset for {partition}: it has expired (offsets.retention.minutes), or the topic was deleted; "
        "the option trustCheckpoint=true continues from the checkpoint"
    )


def _conflict(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed], reason: str) -> OffsetConflictError:
    start = "unknown" if batch.range.start is None else _text(batch.range.start)
    offsets = _text({partition: found.offset for partition, found in committed.items() if partition in batch.range.end})
    found = f"Committed: {offsets}; start of the batch: {start}; end: {_text(batch.range.end)}."
    if batch.table:
        return OffsetConflictError(
            f"checkpoint: batch {batch.batch_id} and the offsets of group {batch.group!r} in the log of table {batch.table} disagree: "
            f"{reason}. {found} Does a second copy of the pipeline run, or was an old checkpoint restored? A new checkpoint continues from "
            "the table's offsets"
        )
    return OffsetConflictError(
        f"group: batch {batch.batch_id} and the committed offsets of group {batch.group!r} disagree: {reason}. {found} Was the group reset "
        "or shared, or an old checkpoint restored? A new checkpoint continues from the group's offsets"
    )


def _text(offsets: BatchOffsets) -> str:
    named = [f"{partition}={offsets[partition]}" for partition in sorted(offsets)[:_NAMED_MAX]]
    more = [f"and {len(offsets) - _NAMED_MAX} more"] if len(offsets) > _NAMED_MAX else []
    return ", ".join([*named, *more]) or "none"


# Queries that are counted


def counted_range(batch_id: int, topic: str | None) -> BatchRange:
    """Returns the range of a counted batch. The range is empty if the batch's partition is not chosen yet."""
    if topic is None:
        return BatchRange({}, {}, is_counted=True)
    return _range_in(TopicPartition(topic, 0), batch_id)


def place_count(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed], targets: Collection[TopicPartition]) -> PlannedBatch:
    """Chooses the partition whose offset counts the query's batches, and returns the batch with this partition. It is the partition that
    this query has used before. Otherwise it is a partition that another pipeline of the group has used; `check_query` then refuses the
    batch. Otherwise it is partition 0 of the alphabetically first topic with output; without output the batch is returned unchanged.

    A partition that is used for the first time has no committed offset yet, so `trusts_checkpoint` is set.
    """
    of_pipelines = {partition: found for partition, one in committed.items() if (found := parse_metadata(one.metadata)) is not None}
    own = [partition for partition, found in sorted(of_pipelines.items()) if found.query_id == batch.query_id]
    known = own or sorted(of_pipelines)
    if known:
        return batch._replace(range=_range_in(known[0], batch.batch_id))
    if not targets:
        return batch
    chosen = TopicPartition(min(partition.topic for partition in targets), 0)
    return batch._replace(range=_range_in(chosen, batch.batch_id), trusts_checkpoint=True)


def _range_in(partition: TopicPartition, batch_id: int) -> BatchRange:
    return BatchRange({partition: batch_id}, {partition: batch_id + 1}, is_counted=True)


def check_query(batch: PlannedBatch, committed: Mapping[TopicPartition, Committed]) -> None:
    """Raises `OffsetConflictError` if the group's offset counts the batches of another query. The same number then means another batch."""
    if not batch.range.is_counted or not batch.query_id:
        return
    for partition in batch.range.end:
        found = parse_metadata(committed[partition].metadata) if partition in committed else None
        if found is not None and found.query_id not in ("", batch.query_id):
            raise OffsetConflictError(
                f"group: {batch.group!r} has the last batch of another query, {found.batch_id} of {found.query_id}, and this is batch "
                f"{batch.batch_id} of {batch.query_id}. A query without a source of format ottla has its position in the checkpoint alone: "
                "restore that checkpoint, or use a new group with the new one"
            )
