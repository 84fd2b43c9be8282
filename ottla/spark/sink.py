"""The sink: tasks encode rows into record batches and pass them to the driver, which commits them in one transaction (`relay.py`).

Processes: for every batch Spark makes a writer in a planning process on the driver's host and pickles it to the tasks, which call `write`.
`commit` and `abort` run in another process on the driver's host; for a stream, Spark makes another writer there. A task's commit message
contains its output, or says where the output is: in a file, or staged on the brokers (`staging.py`).

Only the planning process pickles its writer. When it is pickled, the writer makes the directory for the tasks' output (`spool.py`),
requests the topic, and ends an open transaction of a killed driver (`topics.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.client import ErrorCode, KafkaError
from ottla.spark.batch_range import find_batch_range, find_query_id, group_of_query, mark_used
from ottla.spark.connections import reported
from ottla.spark.errors import BrokerError, OptionError, OutputError, PipelineError, as_pipeline_errors
from ottla.spark.options import SinkOptions
from ottla.spark.relay import Target, commit_batch, write_batch
from ottla.spark.source_groups import find_groups, run_of_task
from ottla.spark.spark_versions import DataSourceStreamArrowWriter
from ottla.spark.spool import Spool, TaskOutput, discard, output_bytes_max, too_large
from ottla.spark.staging import TaskAttempt, open_output
from ottla.spark.topics import NONE_KNOWN, KnownTopics, TopicLimits, check_one_cluster, end_left_open, known_topics, remembered_topic
from ottla.spark.worker_process import freeze_imports

CHUNK_BYTES = 4 * 1024 * 1024
"""Rows that are partitioned and encoded together, in bytes: enough for full batches, few enough for the memory of a task."""

BATCH_OVERHEAD_BYTES = 512
"""Upper bound of the overhead of a batch with one record, in bytes; `kafka.max.request.size` limits record and overhead together."""

_TEXT = ("string", "binary")
_HEADERS = ("array<struct<key:string,value:binary>>", "map<string,binary>", "map<string,string>")
COLUMN_TYPES = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "headers": _HEADERS,
}
"""The columns that the sink uses, besides `deadLetter` (`typed_values.py`); all others are ignored, including `timestamp`. With
`valueFormat`, `value` may have another type."""

_HINTS = {
    ErrorCode.MESSAGE_TOO_LARGE: "make values smaller, or raise the topic's max.message.bytes; if the principal may not read that setting, "
    "lower kafka.batch.size to it",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topics of source and sink have to exist, all of them on one cluster",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs an ACL for WRITE on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs an ACL for READ on the group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the principal needs ACLs for DESCRIBE and WRITE on the transactional id",
}


class TaskMessage(WriterCommitMessage):
    """A task's commit message: its output or where the output is, the query id, and the driver's directory.

    `source_groups` are the groups of the query's sources that were seen on the task's host; `run` is the query's run (`run_of_task`).
    """

    def __init__(
        self, output: TaskOutput, query_id: str | None, spool: Spool | None = None, source_groups: tuple[str, ...] = (), run: str = ""
    ) -> None:
        self.output = output
        self.query_id = query_id
        self.spool = spool
        self.source_groups = source_groups
        self.run = run


class _Writer:
    def __init__(self, options: SinkOptions, schema: Any) -> None:
        check_columns(schema, options)
        self.options = options
        self._schema = schema
        self._spool: Spool | None = None
        self._topics = NONE_KNOWN
        self._values: Any = None
        self._refused: PipelineError | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._spool is None:
            try:
                self._values = written_values(self.options, self._schema)
            except PipelineError as error:
                self._refused = error  # the tasks raise it: Spark would show an error of the planning process with its stack trace
            self._spool = Spool.create(self.options.checkpoint or None)
            self._topics = known_topics(self.options)
        return self.__dict__

    def write(self, rows: Iterator[Any]) -> TaskMessage:
        options, spool = self.options, self._spool
        assert spool is not None, "the writer was pickled on its way to the task"
        task = TaskContext.get()
        attempt = TaskAttempt(task.partitionId(), task.taskAttemptId())
        with (
            reported(),
            hinted(),
            open_output(options.task_output, spool, attempt, options.connection, options.max_output_bytes) as output,
        ):
            if self._refused is not None:
                raise self._refused
            encode_task(rows, options, output, self._topics, self._values)
            return TaskMessage(output.finish(), task.getLocalProperty("sql.streaming.queryId"), spool, find_groups(), run_of_task())

    def _discard(self, messages: Sequence[TaskMessage | None]) -> None:
        """Removes the tasks' files and the batch's directory, even if no task used it."""
        discard(_outputs(messages))
        for spool in {self._spool, *(message.spool for message in messages if message is not None)}:
            if spool is not None and spool.is_here():
                spool.discard()

    def _give_up(self, messages: Sequence[TaskMessage | None]) -> None:
        """Removes the tasks' output. If Spark stopped because their messages are too large, raises an error that names our option."""
        outputs = _outputs(messages)
        self._discard(messages)
        in_messages = sum(output.message_bytes for output in outputs)
        bound = self.options.max_output_bytes or output_bytes_max(False)
        if in_messages > bound:
            raise too_large(in_messages, bound)


class OttlaBatchWriter(_Writer, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode: a topic cannot be overwritten; write with .mode('append')")
        super().__init__(options, schema)

    @reported()
    def commit(self, messages: list[TaskMessage | None]) -> None:
        with hinted():
            write_batch(target_of(self.options, None), _outputs(messages))
        self._discard(messages)

    @reported()
    def abort(self, messages: list[TaskMessage | None]) -> None:
        self._give_up(messages)


class OttlaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Commits each batch of a stream together with the group's offsets, exactly once.

    In the output mode `complete` each batch appends the whole result again, as with Spark's Kafka connector. Without the option `group`
    only the checkpoint has the position of the query, and the sink counts its batches (`decision.py`).
    """

    def __getstate__(self) -> dict[str, Any]:
        if self._spool is None:
            end_left_open(self.options)
        return super().__getstate__()

    @reported()
    def commit(self, messages: list[TaskMessage | None], batchId: int) -> None:
        found = [message for message in messages if message is not None]
        query_id = next((one.query_id for one in found if one.query_id), "")
        seen = {group for message in found for group in message.source_groups}
        commit_outputs(self.options, _outputs(messages), batchId, seen, query_id, run=next((one.run for one in found), ""))
        self._discard(messages)

    @reported()
    def abort(self, messages: list[TaskMessage | None], batchId: int) -> None:
        self._give_up(messages)


def commit_outputs(
    options: SinkOptions, outputs: Sequence[TaskOutput], batch_id: int, seen: Iterable[str], query_id: str = "", *, run: str = ""
) -> None:
    """Commits a batch of a stream, and marks its range as used (`mark_used`). `seen` are the groups of sources that the batch's tasks have
    seen, `run` is their run. `query_id` is for a checkpoint that cannot be read here.
    """
    query_id = find_query_id(options.checkpoint) or query_id
    batch_range = find_batch_range(options.checkpoint, batch_id, group=options.group, sink_topic=options.topic, seen_groups=seen)
    if options.group is None and not query_id:
        raise OptionError("group: missing, and the id of the query is not known here; set source and sink to one consumer group")
    check_one_cluster(options, batch_range)
    target = target_of(options, options.group or group_of_query(query_id))
    with hinted():
        commit_batch(target, outputs, batch_id=batch_id, query_id=query_id, batch_range=batch_range, run=run)
    if options.group is not None:
        mark_used(options.group, batch_id)


def target_of(options: SinkOptions, group: str | None) -> Target:
    """Returns the relay's target and limits; `group` is None for a batch job."""
    return Target(
        options.connection.bootstrap,
        options.connection.security,
        group,
        request_timeout_s=options.connection.timeout_s,
        retry_s=options.retry_s,
        transaction_timeout_ms=options.transaction_timeout_ms,
        output_bytes_max=options.max_output_bytes,
        trusts_checkpoint=options.is_checkpoint_trusted,
    )


def check_columns(schema: Any, options: SinkOptions) -> None:
    """Raises `OutputError` if the rows have no `value`, no topic, or a column of an unsupported type."""
    types = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in types:
        raise OutputError(f"column value is missing, the rows have {', '.join(types)}; make one, such as to_json(struct(*)) AS value")
    if options.topic is None and "topic" not in types:
        raise OutputError("topic: set the option, or add a column topic")
    for name, allowed in COLUMN_TYPES.items():
        if name == "value" and options.values is not None:
            continue
        if types.get(name, allowed[0]) not in (*allowed, "void"):
            raise OutputError(f"column {name} is of type {types[name]}; cast it to {' or '.join(allowed[:2])}")


def written_values(options: SinkOptions, schema: Any) -> Any:
    """Returns the schema of typed values, None for bytes. Raises `PipelineError` if the column `value` does not fit it."""
    if options.values is None:
        return None
    from pyspark.sql.pandas.types import to_arrow_type

    from ottla.spark.typed_values import resolve_sink

    return resolve_sink(options, to_arrow_type(schema["value"].dataType, timezone="UTC"))


def encode_task(rows: Iterator[Any], options: SinkOptions, output: Any, known: KnownTopics = NONE_KNOWN, values: Any = None) -> None:
    """Encodes Arrow batches of rows and appends them to a task's output; each partition keeps the order of the rows. `values` is the result
    of `written_values`."""
    from ottla.arrow.encode import encode_rows
    from ottla.arrow.partitioning import assign_partitions
    from ottla.spark.typed_values import RowWriter

    freeze_imports()

    writer = RowWriter(values)
    limits = dict(known.limits)
    for part, topic in (found for chunk in _chunks(rows) for found in writer.parts(chunk, options.topic)):
        if known.refused is not None:
            raise known.refused
        chosen = _chosen_columns(part, topic)
        _learn_topics(chosen, options, topic, limits)
        counts = {name: one.partitions for name, one in limits.items()}
        with as_pipeline_errors():
            for partition, some in assign_partitions(chosen, counts, topic):
                batches = encode_rows(
                    some,
                    compression=options.compression,
                    batch_bytes=limits[partition.topic].batch_bytes,
                    record_bytes_max=options.max_request_bytes - BATCH_OVERHEAD_BYTES,
                    is_transactional=True,
                )
                for batch in batches:
                    output.append(partition, batch.data, batch.count)


def _chunks(batches: Iterator[Any]) -> Iterator[Any]:
    """Joins small Arrow batches to tables of some megabytes."""
    import pyarrow as pa

    held: list[Any] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _chosen_columns(rows: Any, topic: str | None) -> Any:
    """Returns the columns of records and targets. If the option `topic` sets one topic for all rows, a column `topic` is ignored."""
    return rows.select([name for name in COLUMN_TYPES if name in rows.schema.names and not (name == "topic" and topic is not None)])


def _learn_topics(rows: Any, options: SinkOptions, topic: str | None, limits: dict[str, TopicLimits]) -> None:
    if topic is not None:
        topics = [topic]
    else:
        topics = [name for name in rows.column("topic").unique().to_pylist() if name is not None]
    for name in topics:
        if name not in limits:
            limits[name] = remembered_topic(options, name)


@contextmanager
def hinted() -> Iterator[None]:
    """Converts a `BrokerError` with a known remedy to an `OutputError` that names it."""
    try:
        yield
    except BrokerError as error:
        cause = error.__cause__
        if isinstance(cause, KafkaError) and cause.code in _HINTS:
            raise OutputError(f"{error}; {_HINTS[cause.code]}") from None
        raise


def _outputs(messages: Sequence[TaskMessage | None]) -> list[TaskOutput]:
    return [message.output for message in messages if message is not None]
