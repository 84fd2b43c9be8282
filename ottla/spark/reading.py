"""Reads a range of offsets in a task into Arrow record batches, and reports records and topics that no longer exist."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ottla.client import OffsetOutOfRangeError, RequestTimeoutError, TopicPartition
from ottla.spark import topics
from ottla.spark.connections import ask, explained, reported
from ottla.spark.decision import is_replaced
from ottla.spark.errors import DataLossError, as_pipeline_errors
from ottla.spark.options import ReadForm, SourceOptions
from ottla.spark.planning import Range
from ottla.spark.source_groups import leave_group

if TYPE_CHECKING:
    from ottla.spark.typed_values import RowReader

_log = logging.getLogger("ottla.spark")


def read_ranges(options: SourceOptions, assigned: InputPartition | None, form: ReadForm | None = None) -> Iterator[Any]:
    """Yields the records of a task's ranges, one range after the other, as pyarrow record batches in this form (default: all columns). Runs
    in the tasks, and notes the group for writing tasks (`leave_group`). Raises `PipelineError`, such as `DataLossError`."""
    from ottla.spark.typed_values import RowReader

    leave_group(options.group)
    if assigned is None or assigned.value is None:
        return  # the partition that Spark adds to an empty plan; None before Spark 4.2
    with as_pipeline_errors():
        reader = RowReader(options, form)
    for one in assigned.value:
        yield from _read(options, one, reader)
    with reported():
        for topic, topic_id in {one.partition.topic: one.topic_id for one in assigned.value}.items():
            check_topic(options, topic, topic_id)


def _read(options: SourceOptions, wanted: Range, reader: RowReader) -> Iterator[Any]:
    from ottla.arrow.decode import decode_batches

    partition, start, end, topic_id = wanted
    connection, option = options.connection, options.subscription.option
    with reported(), explained(connection, option), as_pipeline_errors():
        while start < end:
            client = ask(connection, option, lambda client: client)
            try:
                for fetched in client.read(partition, start, end, isolation=options.isolation, partition_max_bytes=options.fetch_bytes):
                    start = fetched.next_offset
                    for rows in decode_batches(fetched, end, schema=reader.stored):
                        yield reader.convert(rows, partition)
            except (OffsetOutOfRangeError, RequestTimeoutError) as error:
                check_topic(options, partition.topic, topic_id)
                if isinstance(error, RequestTimeoutError):
                    raise
                bounds = ask(connection, option, lambda client: topics.read_bounds(client, [partition], options.isolation))[partition]
                start = min(end, skip_lost(options, partition, start, bounds.start))
                if start > bounds.end:
                    raise DataLossError(f"{partition} ends at offset {bounds.end}, but {start} is to be read: the log was cut") from None


def check_topic(options: SourceOptions, topic: str, topic_id: str) -> None:
    """Raises `DataLossError` if the topic was created again since the plan. Called after the ranges of a task, and if a read fails."""
    if not topic_id:
        return
    now = ask(options.connection, options.subscription.option, lambda client: topics.read_ids(client, [topic])).get(topic, "")
    if is_replaced(topic_id, now):
        raise replaced(options, topic, topic_id, now)


def report_replaced(options: SourceOptions, topic: str, before: str, now: str) -> None:
    """Raises `DataLossError` for a topic that was created again, or warns if `failOnDataLoss` is false."""
    if options.is_loss_fatal:
        raise replaced(options, topic, before, now)
    _log.warning("topic %s was deleted and created again (id %s, now %s); it is read from its first record", topic, before, now)


def replaced(options: SourceOptions, topic: str, before: str, now: str) -> DataLossError:
    advice = "start the query again to continue with the new topic"
    if options.is_loss_fatal:
        advice = (
            "start the query with failOnDataLoss=false to continue with the new topic from its first record, or with a new group and a new "
            "checkpoint to begin again"
        )
    return DataLossError(
        f"{options.subscription.option}: topic {topic!r} was deleted and created again since the query read it (id {before}, now {now}), "
        f"or this is another cluster, so its offsets no longer mean the same records; {advice}"
    )


def skip_lost(options: SourceOptions, partition: TopicPartition, start: int, log_start: int) -> int:
    """Returns `start`, or the log start if the records before it may be skipped. Raises `DataLossError` if they may not."""
    if start >= log_start:
        return start
    if options.is_loss_fatal:
        raise DataLossError(
            f"offset {start} of {partition} no longer exists, the log begins at {log_start}: records were deleted before they were read; "
            "set failOnDataLoss=false to continue without them"
        )
    _log.warning("offsets %d to %d of %s no longer exist and are skipped (failOnDataLoss=false)", start, log_start - 1, partition)
    return log_start
