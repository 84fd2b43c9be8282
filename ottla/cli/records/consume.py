"""`ottla consume`: prints records on stdout, with the options of Kafka's console consumer and of kcat.

If no start is given, it reads new records only, as Kafka's tool does; with `-e`, which stops at the end, it starts at the beginning. A
group starts at its committed offsets, if it has any. With `-c N` it commits no record behind the last printed one. `share_consume.py` reads
share groups.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, Refused, UsageError, command, flag, granted, headed, hidden, option
from ottla.cli.optional import part
from ottla.cli.options import connect, properties_of, read_properties
from ottla.cli.output import bytes_writer, write_error
from ottla.cli.parser import FORMATS
from ottla.cli.records import share_consume
from ottla.cli.records.client_options import make_consumer
from ottla.cli.records.record_format import (
    FORMS,
    INTERNAL_FORMATTERS,
    Form,
    Formatter,
    framed,
    internal_formatter,
    make_form,
    processed_count,
    property_formatter,
    token_formatter,
)
from ottla.cli.records.record_input import is_on, unescape
from ottla.cli.records.start_offsets import Start, parse_start, start_positions
from ottla.cli.render.ottla import Output
from ottla.cli.topics.topic_names import named_partitions, pattern_of
from ottla.client.errors import KafkaError, TransportError
from ottla.wire.batch_header import BatchHeader
from ottla.wire.records import CONTROL_COMMIT, ControlRecord, Record

if TYPE_CHECKING:
    from ottla.cli.schemas.record_schemas import RecordDecoder
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.core.fetching import Fetched

POLL_S = 0.5
PARTITION_BYTES_MAX = 4 * 1024 * 1024

Keeps = Callable[[str, int, Record], bool]

SCHEMA_OPTIONS = headed(
    "schemas (extra ottla[schemas])",
    option(
        "--schema",
        metavar="FILE",
        help="of the values: Avro (.avsc), Protobuf (.proto, .desc), else JSON Schema; they are shown as JSON",
    ),
    option("--key-schema", metavar="FILE", help="the same for keys"),
    option("--message", metavar="NAME", help="the Protobuf message of the values (default: the first of the file)"),
    flag("--framed", help="each value begins with a registry's header, though --schema is a file"),
    option("--registry", metavar="URL", help="a schema registry that has the schemas of values and keys"),
)


def _decoder(args: Args) -> RecordDecoder | None:
    """Returns a decoder of records by their schema, or None if no option asks for it."""
    if not any((args.schema, args.key_schema, args.registry, args.message, args.framed)):
        return None
    if args.share_group is not None:
        raise UsageError("schemas do not go with --share-group")
    decoder: RecordDecoder = part("schemas").make_decoder(args)
    return decoder


@command(
    "consume",
    "Read records and print them.",
    option("names", nargs="*", metavar="TOPIC", help="topics"),
    option("-t", "--topic", action="append", metavar="NAME", help="the topic, as an option"),
    option("--include", "--whitelist", metavar="REGEX", help="topics by regular expression"),
    option("-g", "--group", "-G", metavar="GROUP", help="read as a member of this group"),
    *share_consume.OPTIONS,
    *SCHEMA_OPTIONS,
    flag("--from-beginning", help="start with the oldest record"),
    option("-o", "--offset", action="append", default=[], metavar="START", help="where to begin; a range also has an end; table below"),
    option("--output", choices=FORMS, metavar="FORM", help=f"{'|'.join(FORMS)}: an array, an object a line, a table, values"),
    option("--columns", metavar="PART,...", help="of csv: key,value,value.amount,headers.trace and so on; verbs of --where"),
    option("-p", "--partition", type=int, action="append", metavar="N", help="only this partition"),
    option("-c", "-n", "--max-messages", type=int, dest="max_messages", metavar="N", help="stop after N records"),
    flag("-e", "--exit", dest="at_end", help="stop at the end that was there when the command started"),
    flag("-F", "--follow", help="wait for more (the default), and for brokers that are away"),
    option("--timeout-ms", type=int, metavar="MS", help="stop after this time without a printed record"),
    option("--isolation-level", choices=("read_committed", "read_uncommitted"), help="read_committed hides open and aborted transactions"),
    option("--formatter-property", "--property", action="append", default=[], metavar="KEY=VALUE", help="print.key=true and so on"),
    option("--formatter-config", metavar="FILE", help="the same from a file"),
    option("-f", "--format", metavar="FORMAT", help="layout, such as '%%t [%%p] %%o %%k: %%s %%h %%T\\n'; verbs below"),
    flag("-J", "--json", help="one JSON object a record, as --output jsonl"),
    option("--grep", metavar="REGEX", help="only records whose key or value matches"),
    option("--where", metavar="EXPR", help="only records that fit: \"value.amount > 10 and key == 'x'\""),
    flag("--print-control-records", help="transaction markers too"),
    option("-K", "--key-delimiter", metavar="DELIM", help="print KEY DELIM VALUE, as kcat does"),
    option("--key-deserializer", metavar="CLASS", help="Kafka's, for keys that are numbers: LongDeserializer and so on"),
    option("--value-deserializer", metavar="CLASS", help="the same for values"),
    hidden("--formatter", metavar="CLASS"),
    flag("--skip-message-on-error", help="report records that do not fit their schema, and go on"),
    *(hidden(name, action="store_true") for name in ("--enable-systest-events", "--new-consumer")),
    has_output=False,
    needs="READ TOPIC",
)
def _run(args: Args, output: Output) -> int:
    if args.at_end and args.follow:
        raise UsageError("-e stops at the end, -F does not; choose one")
    if args.new_consumer:
        output.note("--new-consumer has no effect any more")
    form = _form(args)
    formatter = _formatter(args) if form is None else form.formatter
    share_consume.check_usage(args)
    if args.max_messages is not None and args.max_messages < -1:
        raise UsageError("--max-messages is a number from 0 on, or -1 for all")
    decoder = _decoder(args)
    if args.share_group is not None:
        with connect(args) as cluster, framed(form):
            return share_consume.run(cluster, args, _topics(cluster, args), formatter)
    keeps = _keeps(args)
    start = parse_start(args)
    started = time.perf_counter()
    with connect(args) as cluster:
        topics = _topics(cluster, args)
        reading = _Reading(args, cluster, start, formatter, keeps, decoder)
        with processed_count(output, lambda: reading.count), framed(form):
            reading.run(topics)
    output.detail(f"client: ottla's own; {reading.bytes} bytes in {time.perf_counter() - started:.3f} s")
    return 0


def _topics(cluster: Cluster, args: Args) -> list[str]:
    """Returns the topics to read. Raises ApiError if a topic or a partition does not exist, UsageError if no topic is named."""
    names = [*args.names, *(args.topic or [])]
    if bool(names) == bool(args.include):
        raise UsageError("name a topic, or some by --include")
    if args.include:
        pattern = pattern_of(args.include)
        names = [name for name in cluster.topic_names() if pattern.fullmatch(name) and not name.startswith("__")]
        if not names:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic matches {args.include!r}")
    for name in names:
        if is_on(properties_of(args), "allow.auto.create.topics", False):
            cluster.topic(name, auto_create=True)  # the broker decides
        named_partitions(cluster, name, args.partition)
    return names


def _form(args: Args) -> Form | None:
    """Returns the form that `--output`, `-o` or `-J` names, or None. Removes the names of forms from the offsets in `args.offset`."""
    words = [word for word in args.offset if word in FORMATS]
    if any(word not in FORMS for word in words):
        raise UsageError(f"records are printed as {', '.join(FORMS)}, or in the layout of -f")
    args.offset = [word for word in args.offset if word not in FORMATS]
    names = {*words, *([args.output] if args.output else []), *(["jsonl"] if args.json else [])}
    if len(names) > 1:
        raise UsageError("two forms of output are named: " + ", ".join(sorted(names)))
    if args.columns is not None and names != {"csv"}:
        raise UsageError("--columns goes with --output csv")
    if not names:
        return None
    args.json = False
    if args.format is not None or args.key_delimiter is not None:
        raise UsageError("-J, --output, -f and -K exclude each other")
    return make_form(names.pop(), args.columns)


def _formatter(args: Args) -> Formatter | None:
    if args.format is not None and args.key_delimiter is not None:
        raise UsageError("-f and -K exclude each other")
    formatter = re.split(r"[.$]", args.formatter or "")[-1]
    if formatter == "NoOpMessageFormatter":
        return lambda *_: b""
    if formatter in INTERNAL_FORMATTERS:
        return internal_formatter(*INTERNAL_FORMATTERS[formatter])
    if formatter not in ("", "DefaultMessageFormatter", "LoggingMessageFormatter"):
        raise UsageError(f"--formatter {args.formatter} is not offered: Java classes cannot be loaded")
    if args.format is not None:
        return token_formatter(args.format)
    if args.key_delimiter is not None:
        return token_formatter(f"%k{args.key_delimiter}%s\n")
    properties = read_properties(args.formatter_config) if args.formatter_config else {}
    for name, given in (("key.deserializer", args.key_deserializer), ("value.deserializer", args.value_deserializer)):
        if given is not None:
            properties[name] = given
    for text in args.formatter_property:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--formatter-property {text!r} is not KEY=VALUE")
        properties[key] = unescape(value)
    return property_formatter(properties)


def _keeps(args: Args) -> Keeps | None:
    """Returns one function for all filters, or None without filters. It returns whether to print a record."""
    checks: list[Keeps] = []
    if args.grep is not None:
        try:
            search = re.compile(args.grep.encode()).search
        except re.error as error:
            raise UsageError(f"--grep {args.grep!r} is not a regular expression: {error}") from None
        checks.append(lambda _topic, _partition, record: bool(search(record.value or b"") or search(record.key or b"")))
    if args.where is not None:
        from ottla.analysis.where import parse_where

        try:
            checks.append(parse_where(args.where))
        except ValueError as error:
            raise UsageError(str(error)) from None
    if not checks:
        return None
    return lambda topic, partition, record: all(check(topic, partition, record) for check in checks)


class _Reading:
    """One run of `consume`: prints records and knows when to stop."""

    def __init__(
        self, args: Args, cluster: Cluster, start: Start, formatter: Formatter | None, keeps: Keeps | None,
        decoder: RecordDecoder | None,
    ) -> None:  # fmt: skip
        self.args = args
        self.decoder = decoder
        self.cluster = cluster
        self.start = start
        self.formatter = formatter
        self.keeps = keeps
        self.count = 0
        self.bytes = 0
        self._unread: list[Fetched] = []
        self.limit: int | None = None if args.max_messages == -1 else args.max_messages
        self.ends: dict[TopicPartition, int] = {}
        self._has_said_so = False
        self._write = bytes_writer(sys.stdout)

    def run(self, topics: list[str]) -> None:
        with self._consumer(topics) as consumer:
            try:
                self._read(consumer)
            except KeyboardInterrupt:
                for unread in self._unread:
                    if unread.partition in consumer.positions:
                        consumer.seek(unread.partition, unread.start)
                self.cluster.close()  # Ctrl-C may have interrupted this connection in the middle of an answer
                consumer.close()  # ends the membership now; otherwise other members would wait until our session expires
                raise

    def _read(self, consumer: Consumer) -> None:
        waited_since = time.monotonic()
        if not consumer.membership:
            self._find_ends(consumer)
        while not self._is_done(consumer):
            found = self._poll(consumer)
            if consumer.membership:
                self._find_ends(consumer)
            before = self.count
            self._unread = found
            for position, fetched in enumerate(found):
                if not self._print(consumer, fetched):
                    # The group's next commit must not include records that were not printed.
                    for unread in found[position + 1 :]:
                        consumer.seek(unread.partition, unread.start)
                    self._unread = []
                    break
                self._unread = found[position + 1 :]
            sys.stdout.buffer.flush()  # otherwise the next program of a pipe would wait until the buffer is full
            now = time.monotonic()
            if self.count > before:
                waited_since = now
            elif self.args.timeout_ms is not None and (now - waited_since) * 1000 >= self.args.timeout_ms:
                return

    def _poll(self, consumer: Consumer) -> list[Fetched]:
        """Polls once. With `-F` (follow) it waits for brokers that cannot be reached. It prints that once, and again only after records
        have arrived.
        """
        try:
            found = consumer.poll(POLL_S)
        except (TransportError, KafkaError) as error:
            if not self.args.follow or (isinstance(error, KafkaError) and not error.is_retriable):
                raise
            if not self._has_said_so:
                write_error(f"waiting: {error}; Ctrl-C gives up\n")
            self._has_said_so = True
            time.sleep(POLL_S)
            return []
        self._has_said_so = self._has_said_so and not found
        return found

    def _consumer(self, topics: list[str]) -> Consumer:
        args = self.args
        properties = properties_of(args)
        group = args.group or properties.get("group.id")
        default_reset = "earliest" if args.from_beginning or args.at_end else "latest"
        consumer = make_consumer(
            self.cluster,
            properties,
            group_id=group,
            isolation_level=args.isolation_level,
            auto_offset_reset=default_reset,
            partition_bytes_max=PARTITION_BYTES_MAX,
            max_wait_ms=500 if args.timeout_ms is None else max(1, min(500, args.timeout_ms // 2)),
        )
        if group is not None and not args.partition and not self.start.is_given:
            consumer.subscribe(topics)
            return consumer
        partitions = [partition for topic in topics for partition in named_partitions(self.cluster, topic, args.partition)]
        consumer.assign(start_positions(self.cluster, partitions, self.start, group, consumer.isolation_level, default_reset))
        return consumer

    def _find_ends(self, consumer: Consumer) -> None:
        """Looks up where to stop in each newly assigned partition. Does nothing if no option asks for a stop."""
        if not self.args.at_end and not self.start.has_end:
            return
        from ottla.client.core.admin import LATEST, list_offsets

        new = [partition for partition in consumer.positions if partition not in self.ends]
        if not new:
            return
        ends = list_offsets(self.cluster, dict.fromkeys(new, LATEST), isolation_level=consumer.isolation_level)
        stops: dict[TopicPartition, Any] = {}
        if self.start.end_ms is not None:
            stops = dict(list_offsets(self.cluster, dict.fromkeys(new, self.start.end_ms)))
        for partition in new:
            end, stop = granted(ends[partition]), granted(stops.get(partition))
            limits = [end.offset] if stop is None or stop.offset < 0 else [end.offset, stop.offset]
            self.ends[partition] = min(limits if self.start.end_offset is None else [*limits, self.start.end_offset])

    def _is_done(self, consumer: Consumer) -> bool:
        if self.limit is not None and self.count >= self.limit:
            return True
        if not self.ends:
            return (self.args.at_end or self.start.has_end) and not consumer.membership and not consumer.positions
        return all(consumer.positions.get(partition, 0) >= self.ends.get(partition, 0) for partition in consumer.assignment)

    def _print(self, consumer: Consumer, fetched: Fetched) -> bool:
        """Prints the fetched records of one partition. Returns False if the limit of records (`-c`) is reached."""
        partition = fetched.partition
        end = self.ends.get(partition)
        left = None if self.limit is None else self.limit - self.count
        if left is not None and left <= 0:
            consumer.seek(partition, fetched.start)
            return False
        is_whole = left is None and (end is None or fetched.next_offset <= end)
        is_plain = self.formatter is None and self.keeps is None and self.decoder is None and not self.args.print_control_records
        if is_plain and is_whole:
            values = [b"null" if record[3] is None else record[3] for record in fetched.records()]
            if values:
                values.append(b"")
                data = b"\n".join(values)
                self._write(data)
                self.bytes += len(data)
                self.count += len(values) - 1
        elif not self._print_each(consumer, fetched, end, left):
            return False
        return True

    def _print_each(self, consumer: Consumer, fetched: Fetched, end: int | None, left: int | None) -> bool:
        topic, number = fetched.partition
        markers = iter(fetched.markers if self.args.print_control_records else ())
        marker = next(markers, None)
        for header, batch in fetched.batches:
            while marker is not None and marker[0].base_offset < header.base_offset:
                self._print_marker(fetched.partition, *marker)
                marker = next(markers, None)
            for record in fetched._replace(batches=((header, batch),)).records():
                if end is not None and record.offset >= end:
                    return True
                if self.decoder is not None:
                    try:
                        record = self.decoder.decode(topic, number, record)
                    except Refused as misfit:
                        if not self.args.skip_message_on_error:
                            raise
                        write_error(f"skipped: {misfit}\n")
                        continue
                if self.keeps is not None and not self.keeps(topic, number, record):
                    continue
                if self.formatter is None:
                    data = (b"null" if record.value is None else record.value) + b"\n"
                else:
                    data = self.formatter(topic, number, header, record)
                self._write(data)
                self.bytes += len(data)
                self.count += 1
                if left is not None:
                    left -= 1
                    if left == 0:
                        consumer.seek(fetched.partition, record.offset + 1)
                        return False
        while marker is not None and (end is None or marker[0].base_offset < end):
            self._print_marker(fetched.partition, *marker)
            marker = next(markers, None)
        return True

    def _print_marker(self, partition: TopicPartition, header: BatchHeader, marker: ControlRecord) -> None:
        kind = "COMMIT" if marker.kind == CONTROL_COMMIT else "ABORT"
        where = f"{partition} offset {header.base_offset} producer {header.producer_id} epoch {header.producer_epoch}"
        self._write(f"-- {kind} {where} coordinator epoch {marker.coordinator_epoch}\n".encode())
