"""`ottla produce`: writes lines of standard input or of a file as records, with the options of Kafka's console producer and of kcat.

Lines are read in large pieces. When no more input is ready for `--timeout` milliseconds, the lines read so far are sent. Lines typed at a
terminal are therefore sent immediately. The exit code is 1 if a record failed. Without a transaction the program continues after a refused
record, such as a record that is too large. Any other failure ends it.
"""

from __future__ import annotations

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from errno import EISDIR
from typing import TYPE_CHECKING, Any

from ottla.analysis.progress import Progress
from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Args, Refused, UsageError, command, flag, headed, hidden, option, parse_pairs
from ottla.cli.optional import part
from ottla.cli.options import BROKER_LIST, connect, output_of, properties_of, read_properties
from ottla.cli.output import write_error
from ottla.cli.records.client_options import make_producer
from ottla.cli.records.record_files import INPUTS, FileRecord, read_records
from ottla.cli.records.record_input import LineReader, unescape
from ottla.cli.render.ottla import Output
from ottla.cli.topics.topic_names import named_partitions, one_topic
from ottla.client.errors import KafkaError
from ottla.wire.compression import CODEC_NAMES

if TYPE_CHECKING:
    from ottla.cli.schemas.record_schemas import RecordEncoder
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Delivery, Producer

SHOWN_PARTITIONS_MAX = 4
SHOWN_BYTES_MAX = 40
OF_ONE_RECORD = frozenset(
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
)
"""Errors of a single record. The producer has split the batch until the refused record was alone, so other records may succeed."""


class Summary:
    """Collects the offsets of delivered records. With `goes_on`, it prints and counts single records that were refused, instead of raising
    their errors.
    """

    def __init__(self, topic: str, *, goes_on: bool = False) -> None:
        self.refused = 0
        self._topic = topic
        self._goes_on = goes_on
        self._offsets: dict[int, tuple[int, int]] = {}
        self._is_without_offsets = False

    def add(self, delivery: Delivery) -> None:
        """Adds a delivered batch. Raises the error of a failed batch, unless it is an error of a single record and `goes_on`."""
        error = delivery.error
        if self._goes_on and isinstance(error, KafkaError) and error.code in OF_ONE_RECORD and len(delivery.records) == 1:
            self.refused += 1
            value = bytes(delivery.records[0].value or b"")
            beginning = value[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
            write_error(f"error: the record of {counted(len(value), 'byte')} that begins with {beginning!r} was refused: {error}\n")
            return
        if error is not None:
            raise error
        if delivery.base_offset < 0:  # acks=0 has no answer
            self._is_without_offsets = True
            return
        last = delivery.base_offset + len(delivery.records) - 1
        number = delivery.partition.partition
        first, highest = self._offsets.get(number, (delivery.base_offset, last))
        self._offsets[number] = (min(first, delivery.base_offset), max(highest, last))

    def show(self, output: Output, cluster: Cluster, count: int, *, is_new: bool) -> None:
        """Prints the summary: in table form as sentences on stderr, unless `-q`; in other forms as an object on stdout."""
        if output.form != "table":
            offsets = [{"partition": number, "first": first, "last": last} for number, (first, last) in sorted(self._offsets.items())]
            output.show_object({"topic": self._topic, "records": count, "is_new_topic": is_new, "offsets": offsets})
            return
        if is_new and count:
            many = counted(len(cluster.partitions(self._topic)), "partition")
            output.note(f"topic {self._topic} did not exist and was created, with {many}")
        output.note(self.sentence(count))

    def sentence(self, count: int) -> str:
        """Returns the summary in one sentence: `5 records to orders, offsets 0-4`."""
        start = f"{counted(count, 'record')} to {self._topic}"
        if not self._offsets or self._is_without_offsets:
            return start
        ranges = {number: str(first) if first == last else f"{first}-{last}" for number, (first, last) in sorted(self._offsets.items())}
        if len(ranges) > SHOWN_PARTITIONS_MAX:
            return f"{start} in {counted(len(ranges), 'partition')}"
        if list(ranges) == [0]:
            return f"{start}, offset{'' if '-' not in ranges[0] else 's'} {ranges[0]}"
        return f"{start}, " + "; ".join(f"partition {number} offset{'s' if '-' in text else ''} {text}" for number, text in ranges.items())


READ_BYTES = 1024 * 1024
SILENT_S = 3.0


def text_stream(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> io.TextIOWrapper:
    """Returns the input decoded as UTF-8, with line ends unchanged and invalid bytes as surrogates. Does not close the descriptor."""
    raw = _IdleInput(descriptor, linger_s, on_idle)
    return io.TextIOWrapper(io.BufferedReader(raw, READ_BYTES), encoding="utf-8", errors="surrogateescape", newline="")


def wait_for_input(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
    """Waits until there is input, or its end. Calls `on_idle` once if this takes `linger_s`. A regular file is always ready."""
    if not select.select([descriptor], [], [], linger_s)[0]:
        on_idle()
        select.select([descriptor], [], [])


class _IdleInput(io.RawIOBase):
    """A descriptor that calls `on_idle` when a read has waited `linger_s` for input."""

    def __init__(self, descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._linger_s = linger_s
        self._on_idle = on_idle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wait_for_input(self._descriptor, self._linger_s, self._on_idle)
        return os.readv(self._descriptor, [buffer])


SCHEMA_OPTIONS = headed(
    "schemas (Avro, Protobuf and registries: extra ottla[schemas])",
    option(
        "--schema",
        metavar="FILE",
        help="values are JSON, and written as Avro (.avsc), Protobuf (.proto, .desc), or checked by JSON Schema",
    ),
    option("--key-schema", metavar="FILE", help="the same for keys"),
    option("--message", metavar="NAME", help="the Protobuf message of the values (default: the first of the file)"),
    option("--registry", metavar="URL", help="a schema registry: use its newest schema of TOPIC-value, or store --schema there"),
    option("--schema-id", type=int, metavar="N", help="with --registry: use the schema of this id"),
)


@command(
    "produce",
    "Write records from standard input or a file.",
    option("name", nargs="?", metavar="TOPIC", help="the topic"),
    option("-t", "--topic", metavar="NAME", help="the topic, as an option"),
    option("-l", "--file", metavar="FILE", help="read this file instead of standard input"),
    option("-k", "--key", metavar="KEY", help="the key of every record"),
    option("-K", "--key-delimiter", metavar="DELIM", help="lines are KEY DELIM VALUE"),
    option("-H", "--header", action="append", default=[], metavar="KEY=VALUE", help="a header of every record"),
    flag("-Z", "--tombstone", help="an empty value is a tombstone (null)"),
    option("-p", "--partition", type=int, default=-1, metavar="N", help="the partition (default: by key, else a new one for each batch)"),
    option("-z", "--compression-codec", nargs="?", const="gzip", choices=CODEC_NAMES, metavar="CODEC", help="|".join(CODEC_NAMES)),
    option(
        "--acks", "--request-required-acks", dest="acks", metavar="-1|0|1|all", help="replicas that must have it: 0, 1 or all (default all)"
    ),
    flag("--sync", help="wait for each record"),
    option("--batch-size", "--max-partition-memory-bytes", type=int, dest="batch_size", metavar="BYTES", help="size of a batch"),
    option("--timeout", type=int, dest="linger_ms", metavar="MS", help="send after this time without new input (default 5)"),
    option("--transactional-id", metavar="ID", help="everything in one transaction, committed at the end of input"),
    option("--reader-property", "--property", action="append", default=[], metavar="KEY=VALUE", help="parse.key=true and so on"),
    option("--reader-config", metavar="FILE", help="the same from a file"),
    option("--format", metavar="FORMAT", help="layout of lines, such as '%%k;%%v;%%h'; verbs below"),
    option("--input", choices=INPUTS, default="lines", metavar="FORM", help=f"{'|'.join(INPUTS)}: what the input is; forms below"),
    option("--key-field", metavar="NAME", help="the column of CSV, or member of JSON, that is the key as well"),
    option("--separator", metavar="CHAR", help="what is between the cells of CSV (default ,)"),
    option("--null", default="", metavar="TEXT", help="a cell of CSV that is null, such as NA, besides an empty one"),
    option("--generate", type=int, metavar="N", help="make N records instead of reading any"),
    option("--rate", type=float, metavar="R", help="with --generate: records per second"),
    *(
        hidden(name)
        for name in ("--line-reader", "--request-timeout-ms", "--metadata-expiry-ms", "--message-send-max-retries", "--retry-backoff-ms")
    ),
    BROKER_LIST,
    *(hidden(name) for name in ("--max-block-ms", "--max-memory-bytes", "--socket-buffer-size")),
    *SCHEMA_OPTIONS,
    needs="WRITE TOPIC",
)
def _run(args: Args, output: Output) -> int:
    topic = one_topic(args)
    reader = _reader(args)
    encoder = _encoder(args, topic)
    _check_form(args)
    separator, null = _separator(args), _null(args)
    if args.partition < -1:
        raise UsageError("--partition is a number from 0 on, or -1 for any")
    if args.line_reader is not None and not args.line_reader.endswith("LineMessageReader"):
        raise UsageError(f"--line-reader {args.line_reader}: readers in Java are not offered; --format gives the layout of a line")
    started = time.perf_counter()
    descriptor = _open(args.file) if args.file else -1
    args.transactional_id = args.transactional_id or properties_of(args).get("transactional.id")
    summary = Summary(topic, goes_on=args.transactional_id is None)
    with connect(args) as cluster, _producer(args, cluster, summary) as producer:
        cluster.any_connection()  # without a broker, fails now and not after the first typed line
        is_new = output.has_summary and (output.is_structured or not args.quiet) and not _exists(cluster, topic)
        _check_partition(cluster, topic, args.partition)
        if args.transactional_id is not None:
            producer.begin()
        try:
            with Progress(
                f"to {topic}", _steps(args, descriptor), is_quiet=args.quiet or (args.generate is None and not args.file)
            ) as progress:
                if args.generate is not None:
                    _generate(producer, topic, args, progress)
                elif args.input != "lines":
                    stream = text_stream(descriptor if args.file else sys.stdin.fileno(), producer.linger_s, _prompt(producer, args))
                    records = read_records(stream, args.input, args.key_field, separator, null)
                    _produce_records(producer, topic, args, encoder, records, progress)
                else:
                    _produce_input(producer, topic, args, reader, encoder, descriptor if args.file else sys.stdin.fileno(), progress)
        except (Refused, KeyboardInterrupt) as end:
            if args.transactional_id is not None:  # otherwise read_committed readers would wait until the transaction times out
                (producer.abort if isinstance(end, Refused) else producer.abandon)()
            raise
        _flush(producer)
        if args.transactional_id is not None:
            producer.commit()
        seconds = time.perf_counter() - started
        if output.has_summary:
            if _has_prompt(args) and args.generate is None:
                write_error("\n")  # ends the line of the last prompt
            summary.show(output, cluster, producer.delivered, is_new=is_new)
    output.detail(f"client: ottla's own; {counted(producer.delivered, 'record')}, {producer.bytes_sent} bytes in {seconds:.3f} s")
    return 1 if summary.refused else 0


OF_LINES = {
    "key": "-k", "key_delimiter": "-K", "tombstone": "-Z", "format": "--format", "reader_property": "--reader-property",
    "reader_config": "--reader-config",
}  # fmt: skip
"""Options that only `--input lines` takes, by attribute."""


def _check_form(args: Args) -> None:
    """Raises UsageError for an option that does not apply to the form of the input."""
    if args.input == "lines" and args.key_field is not None:
        raise UsageError("--key-field goes with --input csv and --input json")
    for name, shown in OF_LINES.items():
        if args.input != "lines" and getattr(args, name):
            raise UsageError(f"{shown} goes with --input lines")


def _null(args: Args) -> str:
    """Returns the text of a cell that means null; an empty cell always means null."""
    if args.null and args.input != "csv":
        raise UsageError("--null goes with --input csv")
    return str(args.null)


def _separator(args: Args) -> str:
    """Returns the separator of cells. Raises UsageError if it is not a single character, or if CSV uses this character itself."""
    if args.separator is None:
        return ","
    if args.input != "csv":
        raise UsageError("--separator goes with --input csv")
    separator = unescape(args.separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise UsageError(f"--separator {args.separator!r} is not one character such as ';' or '\\t'")
    return separator


def _steps(args: Args, descriptor: int) -> int:
    """Returns the total for the progress bar: generated records, or bytes of the file; 0 for standard input, whose length is unknown."""
    return int(args.generate) if args.generate is not None else os.fstat(descriptor).st_size if args.file else 0


def _encoder(args: Args, topic: str) -> RecordEncoder | None:
    """Returns an encoder of JSON by a schema, or None if no option asks for it."""
    if all(value is None for value in (args.schema, args.key_schema, args.registry, args.schema_id, args.message)):
        return None
    if args.generate is not None:
        raise UsageError("schemas do not go with --generate")
    encoder: RecordEncoder = part("schemas").make_encoder(args, topic)
    return encoder


def _exists(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.topic(topic)
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


def _check_partition(cluster: Cluster, topic: str, partition: int) -> None:
    """Raises ApiError if the partition does not exist. Without this check the producer would wait for it until the delivery times out."""
    if partition >= 0:
        cluster.topic(topic, auto_create=True)
        named_partitions(cluster, topic, [partition])


def _open(path: str) -> int:
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise Refused(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def _producer(args: Args, cluster: Cluster, summary: Summary) -> Producer:
    return make_producer(
        cluster,
        properties_of(args),
        acks=args.acks,
        codec=args.compression_codec,
        batch_bytes=args.batch_size,
        linger_ms=args.linger_ms,
        transactional_id=args.transactional_id,
        on_delivery=summary.add,
    )


def _reader(args: Args) -> LineReader:
    properties = read_properties(args.reader_config) if args.reader_config else {}
    for text in args.reader_property:  # one property per option, because its value may be a comma or a blank
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--reader-property {text!r} is not KEY=VALUE")
        properties[key] = unescape(value)
    return LineReader(
        properties,
        key=args.key.encode() if args.key is not None else None,
        key_delimiter=unescape(args.key_delimiter).encode() if args.key_delimiter is not None else None,
        headers=_headers(args),
        is_empty_null=args.tombstone,
        layout=args.format,
    )


def _headers(args: Args) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value.encode()) for name, value in parse_pairs(args.header, "-H").items())


def _produce_input(
    producer: Producer, topic: str, args: Args, reader: LineReader, encoder: RecordEncoder | None, descriptor: int, progress: Progress
) -> None:
    """Produces the lines of the input. Plain lines are produced in bulk, others are parsed one by one."""
    is_plain = reader.is_plain and args.partition < 0 and not args.sync and encoder is None
    number = 0
    linger_s = producer.linger_s
    on_idle = _prompt(producer, args)

    for lines in read_lines(descriptor, linger_s, on_idle):
        progress.add(sum(map(len, lines)) + len(lines))
        if is_plain:
            producer.produce_values(topic, lines)
            continue
        for line in lines:
            number += 1
            try:
                key, value, headers = reader.read(line)
                if encoder is not None:
                    key, value = encoder.encode(key, value, f"line {number}")
            except Refused:
                if args.transactional_id is None:
                    _flush(producer)  # sends the lines before the bad one, as Kafka's tool does
                raise
            producer.produce(topic, value, key, partition=args.partition, headers=headers)
            if args.sync:
                _flush(producer)


def _produce_records(
    producer: Producer, topic: str, args: Args, encoder: RecordEncoder | None, records: Iterator[FileRecord], progress: Progress
) -> None:
    """Produces records that were read from CSV, JSON or an export of `consume`."""
    given = _headers(args)
    noun = "row" if args.input == "csv" else "value"
    try:
        for number, (key, value, headers, timestamp) in enumerate(records, 1):
            if encoder is not None:
                key, value = encoder.encode(key, value, f"{noun} {number}")
            producer.produce(topic, value, key, partition=args.partition, timestamp=timestamp, headers=(*given, *headers))
            progress.add(len(value or b""))
            if args.sync:
                _flush(producer)
    except Refused:
        if args.transactional_id is None:
            _flush(producer)  # sends the rows before the bad one, as for lines
        raise


def _flush(producer: Producer) -> None:
    """Flushes the producer. If this takes longer than `SILENT_S` seconds, prints the reason of the delay."""
    if producer.flush(SILENT_S):
        for error in producer.obstacles().values():
            reason = f"{error.message} ({error.name})" if isinstance(error, KafkaError) else str(error)
            write_error(f"waiting: {reason}; Ctrl-C gives up\n")
        producer.flush()


def _has_prompt(args: Args) -> bool:
    return sys.stdin.isatty() and not args.file and not args.quiet


def _prompt(producer: Producer, args: Args) -> Callable[[], None]:
    """Returns a function to call while there is no input. It sends the records read so far, and shows the prompt on a terminal."""
    has_prompt, output = _has_prompt(args), output_of(args)
    if has_prompt:
        output.explain_input("one record a line; Ctrl-D ends\n")

    def on_idle() -> None:
        _flush(producer)
        if has_prompt:
            output.prompt()

    return on_idle


def read_lines(descriptor: int, linger_s: float, on_idle: Callable[[], None]) -> Iterator[list[bytes]]:
    """Yields lists of whole lines without their ends. Calls `on_idle` when no input has arrived for `linger_s`."""
    rest = b""
    while True:
        wait_for_input(descriptor, linger_s, on_idle)
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        may_have_returns = b"\r" in data or rest.endswith(b"\r")
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if may_have_returns:
            lines = [line.removesuffix(b"\r") for line in lines]
        if lines:
            yield lines
    if rest:
        yield [rest.removesuffix(b"\r")]


def _generate(producer: Producer, topic: str, args: Args, progress: Progress) -> None:
    """Produces `--generate` numbered records, at `--rate` records per second if given."""
    if args.generate < 0 or (args.rate is not None and args.rate <= 0):
        raise UsageError("--generate and --rate must be positive")
    key, headers = args.key.encode() if args.key else None, _headers(args)
    started = time.perf_counter()
    for number in range(args.generate):
        if args.rate is not None:
            while (wait := number / args.rate - (time.perf_counter() - started)) > 0:
                producer.poll(min(wait, 0.01))
                time.sleep(min(wait, 0.01))
        producer.produce(topic, b"record %d" % number, key, partition=args.partition, headers=headers)
        progress.add(1)
