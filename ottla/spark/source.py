"""The source: plans offset ranges on the driver, and reads them in the tasks directly from the leaders into Arrow record batches.

Processes: `OttlaStreamReader` exists as long as the query, in a Python process on the driver's host; Spark asks it for offsets and ranges.
`OttlaBatchReader.partitions` runs in a process that plans one query. `read` runs in the tasks, on a pickled copy. A reader therefore keeps
no connection; `connections.py` does, in each process.

- Ends are last stable offsets: the contents of a range never change, and reading it again gives the same records. With
  `isolation=read_uncommitted` ends are high watermarks; then records of the range may turn out to be aborted.
- The first batch of a new streaming query is empty, except with the trigger `once`. Spark writes only the end of a batch into its offset
  log, and asks for the initial offsets again if the first batch must be repeated. The end of the empty batch is the start of the next one,
  so the log has the start of every batch with records.
- Records are lost if a range starts before the log start or after the log end, or if its topic was deleted. Neither a gap in offsets nor a
  topic that is missing in metadata for a while (`topics.Absence`) is a loss.
- Offsets belong to a topic id: a topic that is deleted and created again under the same name is another topic. The offset log and the
  metadata of the group's offsets have the ids. The ids are compared when a batch is planned and after a range was read.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.client import Client, TopicPartition
from ottla.spark import topics
from ottla.spark.batch_range import is_used, leave_range, same_topics
from ottla.spark.commit_metadata import CommitMetadata, parse_metadata
from ottla.spark.connections import ask, reported
from ottla.spark.decision import is_replaced
from ottla.spark.errors import DataLossError, OffsetConflictError, OptionError, PipelineError
from ottla.spark.offset_json import StoredOffsets, read_offsets, write_offsets
from ottla.spark.option_tables import AVAILABLE_NOW
from ottla.spark.options import ReadForm, ReadPosition, SourceOptions
from ottla.spark.planning import (
    BoundsByPartition,
    Range,
    SourceOffsets,
    admit,
    available,
    check_partitions,
    check_progress,
    ending_offsets,
    initial_offsets,
    join,
    named,
    plan_ranges,
    split,
    starting_offsets,
    wanted_tasks,
    wanted_timestamps,
)
from ottla.spark.reading import read_ranges, report_replaced, skip_lost
from ottla.spark.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    has_start_of_batches,
)

SETTLE_TRIES = 5
"""Attempts to read the ends. After a change of leader a partition may report an end that is too low for a moment."""
SETTLE_PAUSE_S = 0.5

OFFSET_BYTES_MAX = 1024 * 1024
"""Assumed bytes of an offset until records have been sampled: the default maximum size of a record."""

UNKNOWN_OFFSET_BYTES = 1024

SPLIT_OFFSETS_MIN = 1000
"""Without an option, fewer offsets are not split into more tasks than partitions, whatever the size of the records."""

JOINED_OFFSETS_MAX = 5000
"""Without an option, one task of a stream reads several partitions up to this number of offsets. A task costs about 20 ms of CPU time, as
much as some thousand rows."""
JOINED_SECONDS_MAX = 1.0
"""After a batch that took longer, each partition gets a task of its own, because the rows seem to be expensive."""

SAMPLE_FACTOR = 4
"""Safety factor of samples: later records may be larger by this factor."""

T = TypeVar("T")

_log = logging.getLogger("ottla.spark")


class OttlaBatchReader(DataSourceReader):
    """Reads the offsets between two positions once. `bounds` has the log start and end of each partition; with None they are read."""

    def __init__(self, options: SourceOptions, bounds: BoundsByPartition | None, form: ReadForm | None = None) -> None:
        _check_batch_options(options)
        self.options = options
        self.form = form
        self.bounds = bounds

    @reported()
    def partitions(self) -> list[InputPartition]:
        """Returns one range for each partition with records; large ranges are split."""
        options = self.options
        starts, ends, bounds = ask(options.connection, options.subscription.option, self._limits)
        backwards = check_progress(starts, ends)
        if backwards is not None:
            raise OptionError(
                f"{_start_option(options)}: {backwards} would start at {starts[backwards]}, behind its end {ends[backwards]}; "
                f"change it or {options.ending.option if options.ending else 'endingOffsets'}"
            )
        starts = {one: skip_lost(options, one, start, bounds[one].start) for one, start in starts.items()}
        return _tasks([one] for one in _planned(options, starts, ends, {}, lambda: _sampled(options, starts, ends)))

    def _limits(self, client: Client) -> tuple[SourceOffsets, SourceOffsets, BoundsByPartition]:
        options = self.options
        bounds = read_snapshot(client, options) if self.bounds is None else self.bounds
        if not bounds:
            topics.check_subscription(client, options.subscription, bounds)
        ending = options.ending or ReadPosition(kind="latest", option="endingOffsets")
        ends = ending_offsets(ending, bounds, _look_up(client, options, ending, bounds))
        if options.group is not None and options.starting is None:
            committed = _committed(client, options, bounds)
            return initial_offsets(committed, {one: start for one, (start, _) in bounds.items()}, bounds), ends, bounds
        return _starts(client, options, bounds, "earliest"), ends, bounds

    def read(self, partition: Any) -> Iterator[Any]:
        return read_ranges(self.options, partition, self.form)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, form: ReadForm | None = None) -> None:
        if options.ending is not None:
            raise OptionError(f"{options.ending.option}: only a batch read ends; leave it out of a streaming query")
        self.options = options
        self.form = form
        self._initial: dict[str, Any] | None = None
        self._topic_ids: dict[str, str] = {}
        self._is_first = True
        self._offset_bytes: float | None = None
        self._final: SourceOffsets | None = None
        self._planned: SourceOffsets | None = None
        self._known_ends: SourceOffsets | None = None
        self._position: dict[str, Any] | None = None
        self._is_only = True
        self._is_warned = False
        self._absence = topics.Absence(options.subscription)
        self._unready: frozenset[str] = frozenset()
        self._last_batch_at = time.monotonic()
        self._is_planned = False
        self._batch_s = 0.0

    @reported()
    def initialOffset(self) -> dict[str, Any]:
        """Returns the group's committed offsets, else `startingOffsets`; they are read once."""
        if self._initial is None:
            starts, ends = self._ask(self._find_initial)
            self._check_progress(starts, ends)
            self._initial = self._to_json(starts)
        return self._initial

    def _find_initial(self, client: Client) -> tuple[SourceOffsets, SourceOffsets]:
        bounds = self._bounds(client)
        if not bounds:
            _log.warning("subscribePattern: no topic matches %r yet", self.options.subscription.pattern)
            return {}, {}
        ends = {partition: end for partition, (_, end) in bounds.items()}
        committed = {} if self.options.group is None else _committed(client, self.options, bounds, may_be_apart=False)
        if committed:
            return initial_offsets(committed, {}, bounds), ends
        return _starts(client, self.options, bounds, "latest"), ends

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns `maxOffsetsPerTrigger`, else `maxBytesPerTrigger`; with both, `latestOffset` respects the second too."""
        return ReadMaxRows(self.options.max_offsets) if self.options.max_offsets else ReadMaxBytes(self.options.max_bytes)

    @reported()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Returns the end of the next batch, within `limit` and the options; `start` if no batch is to run yet. Before Spark 4.2 there are
        no arguments (`_next_position`)."""
        return self._next_position() if start is None else self._next_end(start, limit or self.getDefaultReadLimit())

    def _next_position(self) -> dict[str, Any]:
        """Returns the end of the next batch, if Spark does not say where it starts.

        A batch starts at the last end that Spark got, or planned: after a restart it plans the last batch of the checkpoint first, so no
        known end means a new query. The trigger is unknown, too, and `availableNow` asks once. Without the option `trigger`, the
        first batch after a start has therefore everything.
        """
        position = self._position
        is_only, self._is_only = self._is_only and not self.options.trigger, False
        if position is None:
            self._is_first = False
            ends = {one: end for one, (_, end) in self._ask(self._bounds).items()}
            self._limit_to_present()
            self._position = self._to_json(ends) if is_only else self.initialOffset()
        else:
            self._position = self._next_end(position, ReadAllAvailable() if is_only else self.getDefaultReadLimit())
        return self._position

    def _bounds(self, client: Client) -> BoundsByPartition:
        bounds = read_snapshot(client, self.options, may_match_later=True)
        self._topic_ids = topics.known_ids(client, bounds)
        return bounds

    def _limit_to_present(self) -> None:
        if self.options.trigger == AVAILABLE_NOW and self._final is None:
            self.prepareForTriggerAvailableNow()

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._limit_to_present()
        if self._is_planned:
            self._batch_s, self._is_planned = time.monotonic() - self._last_batch_at, False
        is_all = isinstance(limit, ReadAllAvailable)
        is_first, self._is_first = self._is_first, False
        if is_first and not is_all and start == self._initial:
            return start
        before = self._from_json(start)
        starts, ends, gone = self._progress(before, is_waiting=is_all or self._final is not None)
        if self._absence.is_undecided:
            return start
        if self._final is not None:
            ends = self._until_final(starts, ends)
        starts.update(self._starts_of_new(ends, starts))
        if self._final is None and not is_all and self._is_too_early(available(starts, ends)):
            return start
        admitted = ends if is_all else admit(starts, ends, self._offsets_within(limit, starts, ends))
        return write_offsets(before.group, admitted, {**before.topic_ids, **self._topic_ids}, gone)

    def _until_final(self, starts: SourceOffsets, ends: SourceOffsets) -> SourceOffsets:
        """For a query that stops by itself: limits the ends to those at its start, without partitions that were created later."""
        assert self._final is not None
        for partition in starts.keys() & ends.keys():
            self._final.setdefault(partition, ends[partition])  # metadata did not have the partition when the query began
        return {one: min(end, max(self._final[one], starts.get(one, 0))) for one, end in ends.items() if one in self._final}

    def _offsets_within(self, limit: ReadLimit, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
        """Returns the maximum number of offsets in a batch. Records are sampled only if the available offsets might reach the limit."""
        found = available(starts, ends)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else found
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self.options.max_bytes
        if not max_bytes or min(found, most) * (self._offset_bytes or OFFSET_BYTES_MAX) * SAMPLE_FACTOR <= max_bytes:
            return int(most)
        self._offset_bytes = _sampled(self.options, starts, ends)
        return int(min(most, max(1, max_bytes // self._offset_bytes)))

    def _is_too_early(self, found: int) -> bool:
        is_waiting = time.monotonic() - self._last_batch_at < self.options.max_delay_ms / 1000
        return found < self.options.min_offsets and is_waiting

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the ends of the logs, for the query's lag in Spark; None if they cannot be read now. Spark asks after each
        `latestOffset`, which has just read them."""
        known, self._known_ends = self._known_ends, None
        try:
            return self._to_json(self._ask(self._present_ends) if known is None else known)
        except PipelineError:
            return None

    @reported()
    def prepareForTriggerAvailableNow(self) -> None:
        """Stores the ends of the logs: the query stops when it has read up to them."""
        self._final = self._ask(self._present_ends)

    def _present_ends(self, client: Client) -> SourceOffsets:
        present, self._unready = topics.present_partitions(client, self.options.subscription)
        self._topic_ids = topics.known_ids(client, present)
        return topics.read_ends(client, present, self.options.isolation)

    def _ask(self, question: Callable[[Client], T]) -> T:
        return ask(self.options.connection, self.options.subscription.option, question)

    @reported()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Returns the ranges of a batch, and writes them for the sink of the same group. They cover the same offsets in each call."""
        before, (_, ends, topic_ids, _) = self._from_json(start), self._from_json(end)
        self._position = end
        starts = {one: at for one, at in same_topics(before, topic_ids).items() if one in ends}
        starts.update(self._starts_of_new(ends, starts))
        if not has_start_of_batches():
            self._check_progress(starts, ends)
        self._last_batch_at, self._is_planned = time.monotonic(), True
        self._is_first = False  # after a restart Spark may repeat a batch first, so the next batch need not be empty
        if self.options.group is not None:
            self._check_group_moves(self.options.group, starts, ends)
            cluster = self._ask(lambda client: client.cluster_id)
            leave_range(self.options.group, starts, ends, topic_ids, cluster=cluster or "")
        readable = self._readable(starts, ends, topic_ids)
        ranges = _planned(self.options, starts, readable, topic_ids, lambda: self._find_offset_bytes(starts, readable))
        is_split = self.options.min_partitions or self.options.max_records or len(ranges) > len({one.partition for one in ranges})
        return _tasks(join(ranges, 0 if is_split or self._batch_s > JOINED_SECONDS_MAX else JOINED_OFFSETS_MAX))

    def _check_group_moves(self, group: str, starts: SourceOffsets, ends: SourceOffsets) -> None:
        """Warns once if the previous batch is done and no sink has committed its offsets."""
        before, self._planned = self._planned, (None if starts == ends else ends)
        if before is None or before != starts or before == ends or self._is_warned or is_used(group):
            return
        self._is_warned = True
        _log.warning(
            "group: no sink commits the offsets of group %r, so that its position stays and its lag grows; write with format ottla and the "
            "same option group, or leave the option out of the source",
            group,
        )

    def _find_offset_bytes(self, starts: SourceOffsets, ends: SourceOffsets) -> float:
        """Returns the last known stored bytes per offset; samples them if unknown."""
        if self._offset_bytes is None:
            self._offset_bytes = _sampled(self.options, starts, ends)
        return self._offset_bytes

    def _readable(self, starts: SourceOffsets, ends: SourceOffsets, topic_ids: Mapping[str, str]) -> SourceOffsets:
        """Returns the ends without topics that were created again since the batch was planned. If the batch has records of such a topic, it
        raises `DataLossError`, or warns if `failOnDataLoss` is false.

        The cluster is asked only if another process has planned the batch.
        """
        if any(self._topic_ids.get(topic) != topic_id for topic, topic_id in topic_ids.items()):
            self._ask(self._present_ends)
        replaced = [topic for topic, topic_id in topic_ids.items() if is_replaced(topic_id, self._topic_ids.get(topic, ""))]
        for topic in replaced:
            if any(one.topic == topic and end > starts[one] for one, end in ends.items()):
                report_replaced(self.options, topic, topic_ids[topic], self._topic_ids[topic])
        return {one: end for one, end in ends.items() if one.topic not in replaced}

    def read(self, partition: Any) -> Iterator[Any]:
        return read_ranges(self.options, partition, self.form)

    def _progress(self, before: StoredOffsets, *, is_waiting: bool) -> tuple[SourceOffsets, SourceOffsets, SourceOffsets]:
        """Returns the valid starts, the ends of all partitions including new ones, and the last offsets of deleted partitions.

        A partition that is missing in metadata for a while gets its start as its end, so nothing is read from it. A query that stops by
        itself (`is_waiting`) waits until the partition is back or counts as deleted. Raises `DataLossError` for a partition that ends
        before it starts and, unless `failOnDataLoss` is false, for a deleted partition and a topic that was created again. Raises
        `PipelineError` if the brokers cannot describe a topic for too long.
        """
        ends, gone, kept = self._settled_ends(before, is_waiting=is_waiting)
        starts = same_topics(before, self._topic_ids)
        for topic in sorted({one.topic for one in before.offsets.keys() - starts.keys()}):
            report_replaced(self.options, topic, before.topic_ids[topic], self._topic_ids[topic])
        check_partitions(before.offsets, {*ends, *kept, *(one for one in before.offsets if one not in starts)},
                         is_loss_fatal=self.options.is_loss_fatal)  # fmt: skip
        if gone:
            _log.warning("not read any more, because deleted or no longer subscribed (failOnDataLoss=false): %s", named(sorted(gone)))
        ends |= {one: starts[one] for one in kept}
        left = {one: starts.pop(one) for one in list(starts) if one not in ends}
        self._check_progress(starts, ends)
        return starts, ends, left

    def _settled_ends(self, before: StoredOffsets, *, is_waiting: bool) -> tuple[SourceOffsets, set[TopicPartition], set[TopicPartition]]:
        """Returns the ends of the partitions in metadata, the deleted partitions of `before`, and the temporarily missing ones."""
        tries, deadline = SETTLE_TRIES, time.monotonic() + topics.GONE_S
        while True:
            ends = self._ask(self._present_ends)
            self._known_ends = dict(ends)
            starts = same_topics(before, self._topic_ids)
            gone, kept = self._absence.observe([one for one in before.offsets if one in starts and one not in ends], self._unready)
            is_settled = before.offsets.keys() <= starts.keys() and check_progress(starts, ends) is None
            tries -= 1
            if kept and is_waiting:
                if time.monotonic() > deadline and self._unready:
                    raise topics.unready_error(self.options.subscription, self._unready)
            elif is_settled or tries <= 0:
                return ends, gone, kept
            time.sleep(SETTLE_PAUSE_S)

    def _check_progress(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        backwards = check_progress(starts, ends)
        if backwards is not None:
            whose = f"the offsets of group {self.options.group!r}, or the checkpoint," if self.options.group else "the checkpoint"
            raise DataLossError(
                f"{backwards} ends at offset {ends[backwards]}, but the query would continue from {starts[backwards]}: {whose} belong to "
                "another topic of this name, or the log was cut; reset the group's offsets and begin with a new checkpoint"
            )

    def _starts_of_new(self, ends: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> SourceOffsets:
        """Returns the starts of partitions that are new since `starts`: their first record."""
        new = [partition for partition in ends if partition not in starts]
        return self._ask(lambda client: topics.read_starts(client, new)) if new else {}

    def _to_json(self, offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
        return write_offsets(self.options.group or "", offsets, self._topic_ids)

    def _from_json(self, stored: Mapping[str, Any]) -> StoredOffsets:
        found = read_offsets(stored)
        if found is None:
            raise PipelineError(
                f"checkpointLocation: it has offsets of another format: {json.dumps(stored)}; begin with a new checkpoint. "
                "Offsets of Spark's Kafka connector may be given to startingOffsets"
            )
        if found.group != (self.options.group or ""):
            raise OptionError(f"group: the checkpoint was made with group {found.group!r}, the query has {self.options.group!r}")
        return found


def read_snapshot(client: Client, options: SourceOptions, *, may_match_later: bool = False) -> BoundsByPartition:
    """Returns first offset and end of all partitions to read. Raises `ClientError` or `PipelineError` if some cannot be read."""
    partitions = topics.settled_partitions(client, options.subscription)
    topics.check_subscription(client, options.subscription, partitions, may_match_later=may_match_later)
    return topics.read_bounds(client, partitions, options.isolation)


def _planned(
    options: SourceOptions,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
    offset_bytes: Callable[[], float],
) -> list[Range]:
    """Splits the ranges. Without an option a large read is divided among the processors of this host, according to `offset_bytes`."""
    ranges = plan_ranges(starts, ends, topic_ids)
    least = options.min_partitions
    if not least and not options.max_records and sum(one.end - one.start for one in ranges) >= SPLIT_OFFSETS_MIN:
        least = wanted_tasks(ranges, offset_bytes(), os.cpu_count() or 1)
    return split(ranges, min_partitions=least, max_records=options.max_records)


def _tasks(groups: Iterable[list[Range]]) -> list[InputPartition]:
    return [InputPartition(ranges) for ranges in groups]


def _sampled(options: SourceOptions, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> float:
    behind = {partition: starts[partition] for partition, end in ends.items() if end > starts[partition]}
    found = ask(
        options.connection, options.subscription.option, lambda client: topics.sample_offset_bytes(client, behind, options.isolation)
    )
    return found or UNKNOWN_OFFSET_BYTES


def _starts(client: Client, options: SourceOptions, bounds: BoundsByPartition, default: str) -> SourceOffsets:
    starting = options.starting or ReadPosition(kind=default, option="startingOffsets")
    found = _look_up(client, options, starting, bounds)
    return starting_offsets(starting, bounds, found, is_latest_after_last=options.is_latest_after_last)


def _start_option(options: SourceOptions) -> str:
    if options.starting is not None:
        return options.starting.option
    return "group" if options.group is not None else "startingOffsets"


def _look_up(client: Client, options: SourceOptions, position: ReadPosition, bounds: BoundsByPartition) -> SourceOffsets:
    return topics.list_offsets(client, wanted_timestamps(position, bounds), options.isolation)


def _committed(client: Client, options: SourceOptions, partitions: BoundsByPartition, *, may_be_apart: bool = True) -> SourceOffsets:
    """Returns the group's committed offsets. For a topic that was created again it raises `DataLossError`, or omits the topic and warns.

    Without `may_be_apart` it raises `OffsetConflictError` if the group's last batch left several sources of one query at different offsets,
    because a new query cannot begin at the lowest. It also warns that the state of an earlier query with this group is lost.
    """
    topic_ids = topics.known_ids(client, partitions)
    offsets: SourceOffsets = {}
    last = CommitMetadata("", 0, 0)
    for partition, committed in topics.committed_offsets(client, options.group or "", partitions).items():
        metadata = parse_metadata(committed.metadata)
        if metadata is not None and metadata.apart and not may_be_apart:
            raise OffsetConflictError(
                f"group: the last batch of group {options.group!r} left several sources of one query at different offsets of {partition}, "
                f"of which {committed.offset} is the lowest; only that query's checkpoint knows the others. Go on with it, or reset the "
                "group's offsets to say where to begin"
            )
        last = max(last, metadata or last, key=lambda one: one.batch_id)
        before, now = "" if metadata is None else metadata.topic_id, topic_ids.get(partition.topic, "")
        if is_replaced(before, now):
            report_replaced(options, partition.topic, before, now)
        else:
            offsets[partition] = committed.offset
    if last.batch_id > 0 and not may_be_apart:
        _log.warning(
            "group: this query begins with a new checkpoint where batch %d of query %s has left group %r; if that query kept state "
            "(windows, joins, totals), the output from its state is never written: restore its checkpoint",
            last.batch_id, last.query_id, options.group,
        )  # fmt: skip
    return offsets


def _check_batch_options(options: SourceOptions) -> None:
    if options.starting is not None and options.starting.kind == "latest":
        raise OptionError(f"{options.starting.option}: latest makes no sense for a batch read, which would be empty")
    if options.starting is not None and options.starting.kind == "offsets" and -1 in options.starting.numbers.values():
        raise OptionError(f"{options.starting.option}: -1 (latest) makes no sense for a batch read")
