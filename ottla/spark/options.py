"""The options of the source and the sink, with the names of Spark's own Kafka connector, parsed and checked.

A query is migrated by changing its format. Options without use here are accepted and ignored (`WITHOUT_EFFECT`). A key that the pipeline
sets itself (`OWNED`) is refused, unless its value is the pipeline's own value (`AS_OWNED`). A name without `kafka.` that resembles a known
option is refused too. Any other unknown key gives a warning. Names are case-insensitive. Every refusal is an `OptionError` whose message
begins with the option's name. The names and meanings are in `option_tables.py`. Needs no pyspark.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client import TopicPartition
from ottla.schemas.value_options import FAIL, NULL, ValueOptions, check_options
from ottla.spark.errors import OptionError, as_pipeline_errors
from ottla.spark.option_tables import (
    AS_OWNED,
    AVAILABLE_NOW,
    BATCH_BYTES,
    CONTINUOUS,
    DELIVERY_TIMEOUT_MS,
    FETCH_BYTES,
    MAX_BYTES_PER_TRIGGER,
    MAX_REQUEST_BYTES,
    MAX_TRIGGER_DELAY_MS,
    OWNED,
    REQUEST_TIMEOUT_MS,
    SINK_TABLE,
    SOURCE_TABLE,
    TRANSACTION_TIMEOUT_MS,
    WITHOUT_EFFECT,
    Option,
)

if TYPE_CHECKING:
    from ottla.schemas.values import ValueSchema

AUTO, FILES, MESSAGES, STAGED = TASK_OUTPUTS = ("auto", "files", "messages", "staged")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ISOLATIONS = ("read_committed", "read_uncommitted")


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
    values: ValueOptions | None = None
    trigger: str = ""

    @property
    def dead_letter_topic(self) -> str:
        """The topic of values that do not fit their schema; empty if there is none."""
        return "" if self.values is None or self.values.errors in (FAIL, NULL) else self.values.errors


class ReadForm(NamedTuple):
    """The names of the columns to read, and whether Spark considers them nullable. Without `values` the values are bytes."""

    columns: Sequence[tuple[str, bool]]
    values: ValueSchema | None = None


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
    values: ValueOptions | None = None


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
        values=_values(given, is_sink=False),
        trigger=given.choice("trigger", "", ("", CONTINUOUS, AVAILABLE_NOW)),
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
        values=_values(given, is_sink=True),
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


def _values(given: _Options, *, is_sink: bool) -> ValueOptions | None:
    """Returns the options of typed values, None for bytes. JSON needs no schema: the sink has the columns, the source may have `.schema()`.
    """
    found = given.text("valueFormat").lower()
    others = ("schema", "registry", "message") if is_sink else ("schema", "registry", "message", "errors")
    if not found:
        extra = next((name for name in others if given.text(name)), None)
        if extra is not None:
            raise OptionError(f"{extra}: it needs the option valueFormat: json, avro or protobuf")
        return None
    schema, registry, message, errors = (given.text(name) for name in ("schema", "registry", "message", "errors"))
    errors = errors.lower() if errors.lower() in (FAIL, NULL) else errors or FAIL
    options = ValueOptions(format=found, schema=schema, registry=registry, message=message, errors=FAIL if is_sink else errors)
    with as_pipeline_errors():
        check_options(options, {"format": "valueFormat", "message": "message"}, needs_schema=found != "json")
    return options


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
