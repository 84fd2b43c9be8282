"""Makes functions for Spark's `foreachBatch` with the guarantees of the sink: their output is committed exactly once, together with the
group's offsets.

    commit = exactly_once(function, options, checkpoint=checkpoint)
    query = rows.writeStream.foreachBatch(commit).option("checkpointLocation", checkpoint).start()

Use it if one stream of rows cannot express the output: several outputs of a batch in one transaction, or output that depends on the whole
batch. `function` may run again for a batch that was committed before a crash; its output is then not sent. Its other side effects are not
covered. Spark fails a stateful query if its rows are not used, so they are consumed here if the function returns None.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ottla.spark.connections import reported
from ottla.spark.errors import OptionError, error_in
from ottla.spark.options import SinkOptions, parse_sink
from ottla.spark.sink import check_columns, commit_outputs, encode_task, written_values
from ottla.spark.source_groups import find_groups, run_of_task
from ottla.spark.spool import Spool, TaskOutput, discard
from ottla.spark.staging import TaskAttempt, open_output
from ottla.spark.topics import NONE_KNOWN, KnownTopics, end_left_open, known_topics

BatchFunction = Callable[[Any, int], Any]


def exactly_once(function: BatchFunction, options: Mapping[str, str], *, checkpoint: str) -> BatchFunction:
    """Returns a function for `DataStreamWriter.foreachBatch` that commits the result of `function(rows, batch_id)`.

    The result is a DataFrame with the sink's columns, a list of such DataFrames, or None for no output. `options` are the sink's options.
    `checkpoint` is the query's `checkpointLocation`, which Spark does not pass on. Raises `OptionError` for invalid options, and without
    `group`.
    """
    parsed = parse_sink({**options, "checkpointLocation": checkpoint})
    if parsed.group is None:
        raise OptionError("group: missing; set source and sink to one consumer group, whose offsets are committed with the output")

    def commit(rows: Any, batch_id: int) -> None:
        end_left_open(parsed)
        made = function(rows, batch_id)
        if made is None:
            rows.write.format("noop").mode("overwrite").save()
        outputs = [] if made is None else list(made) if isinstance(made, Sequence) else [made]
        _commit(outputs, parsed, batch_id)

    return commit


def _commit(frames: Sequence[Any], options: SinkOptions, batch_id: int) -> None:
    spool = Spool.create(options.checkpoint)
    try:
        known = known_topics(options) if frames else NONE_KNOWN
        messages = [message for frame in frames for message in _encode(frame, options, spool, known)]
        outputs, seen = [output for output, *_ in messages], {group for _, groups, _ in messages for group in groups}
        commit_outputs(options, outputs, batch_id, seen, run=next((run for *_, run in messages), ""))
        discard(outputs)
    finally:
        spool.discard()


def _encode(frame: Any, options: SinkOptions, spool: Spool, known: KnownTopics) -> list[tuple[TaskOutput, tuple[str, ...], str]]:
    """Encodes a DataFrame in its tasks; returns each task's output, the groups of sources that were seen and the run, in task order. Raises
    a task's `PipelineError` as it is, without Spark's tracebacks."""
    from pyspark.errors import PySparkException

    check_columns(frame.schema, options)
    values = written_values(options, frame.schema)

    def encode(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        attempt = TaskAttempt(task.partitionId(), task.taskAttemptId())
        with reported(), open_output(options.task_output, spool, attempt, options.connection, options.max_output_bytes) as output:
            encode_task(batches, options, output, known, values)
            message = pickle.dumps((output.finish(), find_groups(), run_of_task()))
        yield pa.RecordBatch.from_pydict({"task": [task.partitionId()], "message": [message]})

    try:
        found = frame.mapInArrow(encode, "task long, message binary").collect()
    except PySparkException as error:
        raise error_in(str(error)) or error from None
    return [pickle.loads(row.message) for row in sorted(found, key=lambda row: row.task)]
