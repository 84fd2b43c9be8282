"""The options of the source and the sink, with the names of Spark's own Kafka connector, parsed and checked.

A query is migrated by changing its format. Options without use here are accepted and ignored (`WITHOUT_EFFECT`). A key whose meaning the
pipeline itself defines (`OWNED`) is refused, unless its value is in `AS_OWNED`. A name without `kafka.` that resembles a known option is
refused too. Any other unknown key gives a warning. Names are case-insensitive. Every refusal is an `OptionError` whose message begins with
the option's name. `SOURCE_TABLE` and `SINK_TABLE` are the reference page. Needs no pyspark.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.client import TopicPartition
from ottla.spark.errors import OptionError

MAX_BYTES_PER_TRIGGER = 256 * 1024 * 1024
"""Default limit of a batch: half of the output that the driver accepts from tasks on other hosts (`spool.py`)."""

MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
BATCH_BYTES = 1024 * 1024
MAX_REQUEST_BYTES = 1024 * 1024
DELIVERY_TIMEOUT_MS = 120_000
FETCH_BYTES = 8 * 1024 * 1024
REQUEST_TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000
AUTO, FILES, MESSAGES, STAGED = TASK_OUTPUTS = ("auto", "files", "messages", "staged")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_committed", "read_uncommitted")


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
    Option("minPartitions", "", "streaming, batch", "Splits large ranges, so that there are at least this many tasks. If neither it "
        "nor `maxRecordsPerPartition` is set, reads of more than some megabytes are divided over the processors of the driver's host; "
        "with 1 each partition is one task."),
    Option("maxRecordsPerPartition", "", "streaming, batch", "Splits ranges with more offsets than this."),
    Option("failOnDataLoss", "true", "streaming, batch", "Whether the query stops if records that it has not read no longer exist: the "
        "log begins after them, or the topic was deleted (and perhaps created again). Gaps of compaction and transactions are no loss."),
    Option("includeHeaders", "false", "streaming, batch", "Adds the column `headers`."),
    Option("kafka.max.partition.fetch.bytes", str(FETCH_BYTES), "streaming, batch", "Bytes of one Fetch. A task has two of them in "
        "memory."),
)  # fmt: skip

SINK_TABLE = (
    *_CONNECTION,
    Option("topic", "", "streaming, batch", "The topic of all rows; has precedence over a column `topic`. Required if there is no such "
        "column."),
    Option("group", "", "streaming", "The consumer group whose offsets are committed with the data; the same as the source's. Without it, "
        "in both, the checkpoint alone has the query's position."),
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

_WITHOUT_EFFECT = frozenset(name.lower() for name in WITHOUT_EFFECT)

_OF_SPARK = frozenset(
    {
        "path", "checkpointlocation", "queryname", "outputmode", "serialization.format", "provider", "owner", "location", "comment",
        "external", "is_managed_location", "collation",
    }
)  # fmt: skip
_OF_TABLE = "option."
"""Spark passes the options of a table twice, once with this prefix."""

_SECURITY_PREFIXES = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.", "https.ca.")
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS = {None: 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_log = logging.getLogger("ottla.spark")
_warned: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """How to connect to the cluster. `security` may contain a password, so it is not printed."""

    bootstrap: str
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    client_id: str = "ottla-spark"
    timeout_s: float = REQUEST_TIMEOUT_MS / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartitions:
    """The partitions to read: all of some topics, all of topics that match a pattern, or single ones. `option` is the name of the option
    used."""

    option: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def covers(self, partition: TopicPartition) -> bool:
        if self.pattern:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition in self.partitions if self.partitions else partition.topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    """Where reading begins or ends. `kind` is `earliest`, `latest`, `offsets`, `timestamp` or `timestamps`, and `option` the name of the
    option used. `numbers` has an offset or timestamp for each partition, `timestamp` one for all."""

    kind: str
    option: str
    numbers: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read. `starting` and `ending` are None if the query does not set them; 0 means no limit."""

    connection: ClusterConnection
    subscription: SourcePartitions
    group: str | None
    isolation: str
    starting: ReadPosition | None
    ending: ReadPosition | None
    is_latest_after_last: bool
    max_offsets: int
    max_bytes: int
    min_offsets: int
    max_delay_ms: int
    min_partitions: int
    max_records: int
    is_loss_fatal: bool
    with_headers: bool
    fetch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write. `checkpoint` is the query's checkpoint directory as Spark passes it, empty for batch writes."""

    connection: ClusterConnection
    topic: str | None
    group: str | None
    compression: str
    max_output_bytes: int | None
    is_checkpoint_trusted: bool
    task_output: str
    transaction_timeout_ms: int
    retry_s: float
    batch_bytes: int
    max_request_bytes: int
    checkpoint: str


def is_source(options: Mapping[str, str]) -> bool:
    return any(_Options(options).text(name) for name in ("subscribe", "subscribePattern", "assign"))


def parse_source(options: Mapping[str, str]) -> SourceOptions:
    """Raises `OptionError` for the first invalid option."""
    given = _Options(options)
    given.check_names(SOURCE_TABLE, SINK_TABLE)
    return SourceOptions(
        connection=_connection(given),
        subscription=_subscription(given),
        group=given.text("group") or None,
        isolation=_isolation(given),
        starting=_position(given, "starting"),
        ending=_position(given, "ending"),
        is_latest_after_last=given.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest")) == "latest",
        max_offsets=given.number("maxOffsetsPerTrigger", 0),
        max_bytes=given.number("maxBytesPerTrigger", 0 if given.text("maxOffsetsPerTrigger") else MAX_BYTES_PER_TRIGGER),
        min_offsets=given.number("minOffsetsPerTrigger", 0, least=0),
        max_delay_ms=_duration_ms(given, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=given.number("minPartitions", 0, least=0),
        max_records=given.number("maxRecordsPerPartition", 0, least=0),
        is_loss_fatal=given.boolean("failOnDataLoss", True),
        with_headers=given.boolean("includeHeaders", False),
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes", FETCH_BYTES),
    )


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Raises `OptionError` for the first invalid option."""
    given = _Options(options)
    given.check_names(SINK_TABLE, SOURCE_TABLE)
    codec = given.text("compression") or given.text("kafka.compression.type") or "lz4"
    if codec.lower() not in COMPRESSIONS:
        raise OptionError(f"compression: {codec!r} is none of {', '.join(COMPRESSIONS)}")
    return SinkOptions(
        connection=_connection(given),
        topic=given.text("topic") or None,
        group=given.text("group") or None,
        compression=codec.lower(),
        max_output_bytes=given.number("maxOutputBytes", 0) or None,
        is_checkpoint_trusted=given.boolean("trustCheckpoint", False),
        task_output=given.choice("taskOutput", "auto", TASK_OUTPUTS),
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        retry_s=given.number("kafka.delivery.timeout.ms", DELIVERY_TIMEOUT_MS) / 1000,
        batch_bytes=given.number("kafka.batch.size", BATCH_BYTES, least=512),
        max_request_bytes=given.number("kafka.max.request.size", MAX_REQUEST_BYTES, least=1024),
        checkpoint=given.text("checkpointLocation"),
    )


class _Options:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower().removeprefix(_OF_TABLE): str(value).strip() for name, value in options.items()}

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "")

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        found = self.text(name)
        if not found:
            return default
        try:
            number = int(found)
        except ValueError:
            raise OptionError(f"{name}: {found!r} is no whole number") from None
        if number < least:
            raise OptionError(f"{name}: {number} is less than {least}")
        return number

    def boolean(self, name: str, default: bool) -> bool:
        return self.choice(name, str(default).lower(), ("true", "false")) == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        found = (self.text(name) or default).lower()
        if found not in choices:
            raise OptionError(f"{name}: {found!r} is none of {', '.join(choices)}")
        return found

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.text(name))
        except ValueError as error:
            raise OptionError(f"{name}: {self.text(name)!r} is no JSON ({error})") from None

    def security(self) -> tuple[tuple[str, str], ...]:
        found = ((name.removeprefix("kafka."), value) for name, value in self._values.items() if name.startswith("kafka."))
        return tuple(sorted((name, value) for name, value in found if name.startswith(_SECURITY_PREFIXES)))

    def check_names(self, ours: tuple[Option, ...], others: tuple[Option, ...]) -> None:
        """Refuses owned keys and misspelled names; warns of unknown ones, once per process."""
        known = {option.name.lower(): option.name for option in (*others, *ours)}
        known.update({"kafka.isolation.level": "kafka.isolation.level", "kafka.compression.type": "kafka.compression.type"})
        for name in self._values:
            if name in OWNED and self.text(name).lower() != AS_OWNED.get(name):
                raise OptionError(f"{name}: cannot be set; {OWNED[name]}")
            if name in known or name in OWNED or name in _WITHOUT_EFFECT or name in _OF_SPARK or _is_security(name):
                continue
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if near and not name.startswith("kafka."):
                raise OptionError(f"{name}: no such option; did you mean {known[near[0]]}?")
            _warn(f"option {name} is unknown and has no effect")


def _is_security(name: str) -> bool:
    return name.startswith("kafka.") and name.removeprefix("kafka.").startswith(_SECURITY_PREFIXES)


def _warn(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        _log.warning(message)


def _connection(given: _Options) -> ClusterConnection:
    bootstrap = given.text("kafka.bootstrap.servers")
    if not bootstrap:
        raise OptionError("kafka.bootstrap.servers: missing; set it to some of the brokers, HOST:PORT[,HOST:PORT...]")
    return ClusterConnection(
        bootstrap=bootstrap,
        security=given.security(),
        client_id=given.text("kafka.client.id") or "ottla-spark",
        timeout_s=given.number("kafka.request.timeout.ms", REQUEST_TIMEOUT_MS) / 1000,
    )


def _isolation(given: _Options) -> str:
    name = "isolation" if given.text("isolation") else "kafka.isolation.level"
    return given.choice(name, "read_committed", ISOLATIONS)


def _subscription(given: _Options) -> SourcePartitions:
    names = ("subscribe", "subscribePattern", "assign")
    chosen = [name for name in names if given.text(name)]
    if len(chosen) != 1:
        how = "none is" if not chosen else f"{' and '.join(chosen)} are"
        hint = "; a view to write to names its columns: CREATE TEMPORARY VIEW ... (key STRING, value STRING) USING ottla ..."
        is_sink = not chosen and given.text("topic")
        raise OptionError(f"{', '.join(names)}: exactly one of them says what to read, but {how} set{hint if is_sink else ''}")
    option = chosen[0]
    if option == "assign":
        return SourcePartitions(option=option, partitions=tuple(sorted(_assigned(given))))
    if option == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in given.text(option).split(",") if topic.strip()}))
        if not topics:
            raise OptionError("subscribe: names no topic")
        return SourcePartitions(option=option, topics=topics)
    try:
        re.compile(given.text(option))
    except re.error as error:
        raise OptionError(f"subscribePattern: {given.text(option)!r} is no regular expression ({error})") from None
    return SourcePartitions(option=option, pattern=given.text(option))


def _assigned(given: _Options) -> set[TopicPartition]:
    found = given.json("assign")
    try:
        assigned = {TopicPartition(str(topic), _whole(number)) for topic, numbers in found.items() for number in numbers}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'assign: {given.text("assign")!r} is not of the form {{"topic":[0,1]}}') from None
    if not assigned:
        raise OptionError("assign: names no partition")
    return assigned


def _position(given: _Options, which: str) -> ReadPosition | None:
    """Returns where reading starts or ends. A timestamp for all partitions takes precedence over single timestamps, and these over offsets.
    """
    option = f"{which}Timestamp"
    if given.text(option):
        return ReadPosition(kind="timestamp", option=option, timestamp=given.number(option, 0, least=0))
    option = f"{which}OffsetsByTimestamp"
    if given.text(option):
        return ReadPosition(kind="timestamps", option=option, numbers=_partition_numbers(given, option, least=0))
    option = f"{which}Offsets"
    text = given.text(option)
    if not text:
        return None
    if text.lower() in ("earliest", "latest"):
        return ReadPosition(kind=text.lower(), option=option)
    if not text.startswith("{"):
        raise OptionError(f'{option}: {text!r} is neither earliest nor latest nor JSON like {{"topic":{{"0":23}}}}')
    return ReadPosition(kind="offsets", option=option, numbers=_partition_numbers(given, option, least=-2))


def _partition_numbers(given: _Options, option: str, *, least: int) -> dict[TopicPartition, int]:
    found = given.json(option)
    try:
        numbers = {TopicPartition(topic, int(partition)): _whole(n) for topic, some in found.items() for partition, n in some.items()}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'{option}: {given.text(option)!r} is not of the form {{"topic":{{"0":23,"1":45}}}}') from None
    for partition, number in numbers.items():
        if number < least:
            raise OptionError(f"{option}: {number} for {partition} is less than {least}")
    return numbers


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _duration_ms(given: _Options, name: str, default: int) -> int:
    text = given.text(name).lower()
    if not text:
        return default
    found = _DURATION.fullmatch(text)
    if found is None:
        raise OptionError(f"{name}: {text!r} is no duration such as 30s or 15m")
    return int(found[1]) * _UNITS_MS[found[2]]
