"""The options of the source and the sink as tables: names, defaults, meanings, and names that are refused or ignored. The reference page is
made of these tables."""

from __future__ import annotations

from typing import NamedTuple

MAX_BYTES_PER_TRIGGER = 256 * 1024 * 1024
"""Default limit of a batch: half of the output that the driver accepts from tasks on other hosts (`spool.py`)."""

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
BATCH_BYTES = 1024 * 1024
MAX_REQUEST_BYTES = 1024 * 1024
DELIVERY_TIMEOUT_MS = 120_000
FETCH_BYTES = 8 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
CONTINUOUS, AVAILABLE_NOW = "continuous", "available-now"
"""The values of the option `trigger`."""
TRANSACTION_TIMEOUT_MS = 60_000


class Option(NamedTuple):
    """A line of the reference: name, default as text, use, meaning."""

    name: str
    default: str
    used_by: str
    meaning: str


_CONNECTION = (
    Option("kafka.bootstrap.servers", "", "all", "Some of the brokers, `HOST:PORT[,HOST:PORT...]`. Required."),
    Option(
        "kafka.security.protocol", "PLAINTEXT", "all", "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; with it all `kafka.sasl.*` "
        "and `kafka.ssl.*` settings of Kafka's clients (TLS files in PEM form).",
    ),
    Option("kafka.client.id", "ottla-spark", "all", "The name of this client in the broker's quotas and logs."),
    Option("kafka.request.timeout.ms", str(REQUEST_TIMEOUT_MS), "all", "How long one request, or one series of tries, may take."),
)  # fmt: skip

_VALUES = (
    Option("valueFormat", "", "streaming, batch", "`json`, `avro` or `protobuf`: the column `value` has the type of a schema instead of "
        "binary."),
    Option("schema", "", "streaming, batch", "The schema of the values, as text or as a file on the driver: Avro, Protobuf (`.proto`, or "
        "compiled: `.desc`, `.binpb`, `.pb`), JSON Schema. For JSON, a source may have the type in `.schema(...)` instead."),
    Option("registry", "", "streaming, batch", "The URL of a schema registry (Confluent's REST API, `http://USER:PASSWORD@HOST:PORT`). "
        "Each value begins with the id of its schema. Without `schema`, the newest version of the subject TOPIC-value has the type. A sink "
        "with both stores the schema as a version of this subject."),
    Option("message", "", "streaming, batch", "The name of a Protobuf message; by default the first of the schema."),
)  # fmt: skip

SOURCE_TABLE = (
    *_CONNECTION,
    Option("subscribe", "", "streaming, batch", "Topics, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` "
        "is required."),
    Option("subscribePattern", "", "streaming, batch", "A regular expression (Python's) that whole topic names match. Internal topics "
        "are not read. A stream may begin before any topic matches."),
    Option("assign", "", "streaming, batch", 'Single partitions as JSON: `{"orders":[0,1]}`.'),
    Option("group", "", "streaming, batch", "The consumer group whose committed offsets are where a query without checkpoint begins. The "
        "sink commits to it. Without a group, or if it has committed nothing, the query begins at `startingOffsets`. A batch read with "
        "both options begins at `startingOffsets`."),
    Option("isolation", "read_committed", "streaming, batch", "`read_committed` or `read_uncommitted`. `kafka.isolation.level` is the "
        "same."),
    Option("startingOffsets", "latest; batch: earliest", "streaming, batch", "`earliest`, `latest` (streaming only), or an offset for "
        'each partition as JSON, `{"orders":{"0":23,"1":-2}}`: -2 is earliest, -1 latest.'),
    Option("startingOffsetsByTimestamp", "", "streaming, batch", "A timestamp in milliseconds for each partition as JSON: the first "
        "record at or after it. Has precedence over `startingOffsets`."),
    Option("startingTimestamp", "", "streaming, batch", "One timestamp for all partitions. Has precedence over "
        "`startingOffsetsByTimestamp`."),
    Option("startingOffsetsByTimestampStrategy", "error", "streaming, batch", "What a timestamp after the last record means: `error`, or "
        "`latest`."),
    Option("endingOffsets", "latest", "batch", "`latest`, or JSON as above (-1 is latest). The end is exclusive."),
    Option("endingOffsetsByTimestamp", "", "batch", "A timestamp for each partition. Without a record at or after it, the end is the "
        "latest offset."),
    Option("endingTimestamp", "", "batch", "One timestamp for all partitions."),
    Option("maxOffsetsPerTrigger", "", "streaming", "Maximum number of offsets in a batch, divided over the partitions in proportion "
        "to their remaining offsets. Markers and aborted records count."),
    Option("maxBytesPerTrigger", f"{MAX_BYTES_PER_TRIGGER}; none with maxOffsetsPerTrigger", "streaming", "Approximate maximum of "
        "stored bytes in a batch, computed from the size of the next few records."),
    Option("minOffsetsPerTrigger", "", "streaming", "A batch waits until this many offsets are available, or `maxTriggerDelay` has "
        "passed."),
    Option("maxTriggerDelay", "15m", "streaming", "How long a batch may wait for `minOffsetsPerTrigger`: a number with `ms`, `s`, `m`, "
        "`h` or `d`."),
    Option("trigger", "", "streaming", "Only for Spark 4.0 and 4.1: `continuous` bounds the first batch after a start, too, and "
        "`available-now` also ends at the present end of the logs. Not for Spark's triggers `availableNow` and `once`, which then read one "
        "such batch. Pipelines set it."),
    Option("minPartitions", "", "streaming, batch", "Splits large ranges, so that there are at least this many tasks. If neither it "
        "nor `maxRecordsPerPartition` is set, reads of more than some megabytes are divided over the processors of the driver's host; "
        "with 1 each partition is one task. A stream reads several partitions with at most 5,000 offsets together in one task, while its "
        "batches take less than a second."),
    Option("maxRecordsPerPartition", "", "streaming, batch", "Splits ranges with more offsets than this."),
    Option("failOnDataLoss", "true", "streaming, batch", "Whether the query stops if records that it has not read no longer exist: the "
        "log begins after them, or the topic was deleted (and perhaps created again). Gaps of compaction and transactions are no loss."),
    Option("includeHeaders", "false", "streaming, batch", "Adds the column `headers`."),
    *_VALUES,
    Option("errors", "fail", "streaming, batch", "A value that does not fit the schema: `fail` stops the query, `null` makes it null, and "
        "any other word is a topic: the source then has the column `deadLetter`, which the sink writes to this topic."),
    Option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES), "streaming, batch", "Bytes of one Fetch. A task has two of them in "
        "memory."),
)  # fmt: skip

SINK_TABLE = (
    *_CONNECTION,
    Option("topic", "", "streaming, batch", "The topic of all rows; has precedence over a column `topic`. Required if there is no such "
        "column."),
    Option("group", "", "streaming", "The consumer group whose offsets are committed with the data; the same as the source's. Without it, "
        "in both, the checkpoint alone has the query's position."),
    *_VALUES,
    Option("compression", "lz4", "streaming, batch", "`none`, `gzip`, `snappy`, `lz4` or `zstd`. `kafka.compression.type` is the same."),
    Option("taskOutput", "auto", "streaming, batch", "How the tasks' output gets into the transaction: `files` for the driver, on its "
        "host; `staged` on the brokers, directly from the executors (Ottla only); `messages` to the driver through Spark. `auto` uses "
        "files if the executor can open the driver's directory, else `staged` for more than 1 MiB, else `messages`."),
    Option("maxOutputBytes", "4 GiB; 512 MiB in messages", "streaming, batch", "Maximum number of encoded bytes that one batch may "
        "write. All of it is one transaction, and output that is not staged passes through the driver: in files on its host, or in "
        "Spark's messages."),
    Option("trustCheckpoint", "false", "streaming", "Continues from the checkpoint if the group's committed offsets no longer exist "
        "(expired, deleted). Set it for one run only."),
    Option("kafka.transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS), "streaming, batch", "Timeout after which the broker aborts the "
        "transaction of a killed driver. A large batch gets more time: a second for each 0.5 MiB, at most 15 minutes."),
    Option("kafka.delivery.timeout.ms", str(DELIVERY_TIMEOUT_MS), "streaming, batch", "How long a batch is retried while brokers "
        "cannot be reached. Then the query stops."),
    Option("kafka.batch.size", str(BATCH_BYTES), "streaming, batch", "The size of record batches before compression; never more than "
        "the topic's `max.message.bytes`, if the principal may read it."),
    Option("kafka.max.request.size", str(MAX_REQUEST_BYTES), "streaming, batch", "Maximum size of a record. The topic's "
        "`max.message.bytes` limits it too."),
)  # fmt: skip

OWNED = {
    "kafka.group.id": "the group is the option `group`",
    "kafka.transactional.id": "it is made from the option `group`",
    "kafka.enable.auto.commit": "offsets are committed with the data",
    "kafka.auto.offset.reset": "set `startingOffsets`",
    "kafka.enable.idempotence": "the sink is always idempotent",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.key.deserializer": "keys are binary columns; cast them in the query",
    "kafka.value.deserializer": "values are binary columns; cast them in the query",
    "kafka.interceptor.classes": "there are no interceptors",
    "kafka.partitioner.class": "set a column `partition`",
}
"""Keys whose meaning the pipeline defines, with the alternative."""

AS_OWNED = {"kafka.enable.idempotence": "true", "kafka.enable.auto.commit": "false"}
"""Values of `OWNED` keys that are accepted, because the pipeline behaves like that anyway."""

_BY_TIME = "`kafka.request.timeout.ms` bounds each series of tries"
_BY_BYTES = "`kafka.max.partition.fetch.bytes` is the size of a fetch, which does not wait"
_NO_MEMBER = "a query is no member of its group"
_SINK = "batches are `kafka.batch.size` large, and sent as they are"
WITHOUT_EFFECT = {
    "kafkaConsumer.pollTimeoutMs": _BY_TIME,
    "fetchOffset.numRetries": _BY_TIME,
    "fetchOffset.retryIntervalMs": _BY_TIME,
    "groupIdPrefix": "no group is generated for reading",
    "kafka.acks": "all replicas in sync acknowledge, always",
    "kafka.linger.ms": _SINK,
    "kafka.buffer.memory": _SINK,
    "kafka.max.in.flight.requests.per.connection": _SINK,
    "kafka.retries": "`kafka.delivery.timeout.ms` bounds them",
    "kafka.max.block.ms": "`kafka.delivery.timeout.ms` bounds it",
    "kafka.fetch.min.bytes": _BY_BYTES,
    "kafka.fetch.max.wait.ms": _BY_BYTES,
    "kafka.fetch.max.bytes": _BY_BYTES,
    "kafka.max.poll.records": "`maxOffsetsPerTrigger` bounds a batch",
    "kafka.max.poll.interval.ms": _NO_MEMBER,
    "kafka.session.timeout.ms": _NO_MEMBER,
    "kafka.heartbeat.interval.ms": _NO_MEMBER,
    "kafka.default.api.timeout.ms": _BY_TIME,
    "kafka.metadata.max.age.ms": "the driver requests metadata for each batch",
}
"""Options of Spark's connector and of Kafka's clients that are accepted and ignored, with the reason."""
