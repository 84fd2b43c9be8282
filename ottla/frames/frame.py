"""`ottla.frame`: the records of a topic as a DataFrame, without Spark.

    import ottla

    orders = ottla.frame("orders", since="-1h", value_format="json")
    orders.to_polars()

A `Frame` has no records, only the offsets to read and the columns. Each conversion reads the topic again, partition by partition in the
order of offsets; the next Fetch is in flight while records are decoded. `to_reader` and every library that reads Arrow streams
(`__arrow_c_stream__`) get batches of at most 65,536 rows, so memory is bounded for a topic of any size. `to_arrow`, `to_polars` and
`to_pandas` hold all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ottla.analysis.progress import Progress
from ottla.client import TopicPartition
from ottla.frames.errors import FrameError, FrameUsageError, UnfitValueError
from ottla.frames.packages import as_frame_errors, library
from ottla.frames.ranges import Moment, Offsets, find_offsets
from ottla.frames.source import Source, source_of
from ottla.schemas.value_options import FAIL, FORMATS, NULL, ValueOptions, check_options

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
"""The columns of a frame by default."""
OTHER_COLUMNS = ("topic", "timestampType", "headers")
"""Columns that a frame has if `columns` names them."""
SAMPLE_ROWS = 10_000
"""Maximum number of values of each partition that decide the types of JSON. They are from the first record batch of Arrow."""
FETCH_BYTES = 8 * 1024 * 1024
"""Bytes of one Fetch. Two are in memory at a time: the one that is decoded, and the next one."""


def frame(
    topic: str,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    partitions: Iterable[int] | None = None,
    offsets: Offsets | None = None,
    columns: Sequence[str] | None = None,
    key_format: str = "bytes",
    value_format: str = "bytes",
    schema: str | None = None,
    registry: str | None = None,
    message: str | None = None,
    errors: str = "fail",
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    isolation: str = "read_committed",
    progress: bool | None = None,
) -> Frame:
    """Returns the records of a topic as a `Frame`. It asks the cluster for offsets and, except for JSON without a schema, reads no records.

    `since` and `until` (exclusive) are times: `-1h`, an ISO date, milliseconds since 1970 or a datetime. `partitions` are numbers of
    partitions; `offsets` has the first offset and the end of each instead. `columns` are names, in their order; by default `COLUMNS`.
    `key_format` and `value_format` are `bytes` or `text` (UTF-8). Values may also be `json`, `avro` or `protobuf`: then they have the type
    of `schema` (its text, or the path of a file), or of the newest schema of the subject TOPIC-value in `registry`, the URL of a schema
    registry. With a registry each value begins with the id of its schema. `message` is the name of a Protobuf message, by default the
    first. JSON without `schema` and `registry` has the types of a sample, which is read immediately. A value that does not fit ends the
    reading, or with `errors="null"` is null. `bootstrap` is `HOST:PORT[,...]`, by default OTTLA_BOOTSTRAP, KAFKA_BOOTSTRAP_SERVERS or
    localhost:9092. `config` has the security settings of Kafka's clients. `isolation` is `read_committed` or `read_uncommitted`. A progress
    bar is shown on a terminal and in a notebook, unless `progress` is False.

    Raises `UnknownTopicError`, `ConnectError` and other `ClientError`s, `FrameUsageError` for a wrong argument, `FrameError` for offsets
    out of range, for a sample that is not JSON or has no common type, and for a registry that does not answer, and `MissingPackageError`
    without the packages of `ottla[frame]` or `ottla[schemas]`.
    """
    library("pyarrow"), library("numpy")
    from ottla.frames.columns import chosen_columns

    if isolation not in ("read_committed", "read_uncommitted"):
        raise FrameUsageError(f"isolation: {isolation!r} is neither read_committed nor read_uncommitted")
    chosen = chosen_columns(COLUMNS if columns is None else columns, key=key_format, value=value_format)
    values = _value_options(value_format, schema, registry, message, errors)
    source = source_of(bootstrap, config, isolation)
    with source.connect() as client:
        found = find_offsets(
            client, topic, since=since, until=until, partitions=partitions, offsets=offsets, isolation=isolation
        )
    made = Frame(topic, found, chosen, source, progress=progress)
    if values is None or "value" not in chosen.schema.names:
        return made
    with as_frame_errors():
        from ottla.schemas.values import ValueDecoder, ValueSchema, resolve_values

        if values.schema or values.registry:
            resolved = resolve_values(values, [topic])
        else:
            resolved = ValueSchema(options=values, kind=made.infer_json(), is_strict=True)
        typed = chosen.with_values(ValueDecoder(resolved), is_fatal=errors != NULL)
    return Frame(topic, found, typed, source, progress=progress)


def _value_options(value_format: str, schema: str | None, registry: str | None, message: str | None, errors: str) -> Any:
    """Returns the options of typed values, None for bytes and text. Raises `FrameUsageError` for options that contradict each other."""
    if value_format not in FORMATS:
        given = {"schema": schema, "registry": registry, "message": message}
        extra = next((name for name, value in given.items() if value), None)
        if extra is not None:
            raise FrameUsageError(f"{extra}: it needs a value_format, {', '.join(FORMATS)}")
        return None
    if errors not in (FAIL, NULL):
        raise FrameUsageError(f"errors: {errors!r} is neither fail nor null; a frame writes to no topic")
    with as_frame_errors():
        options = ValueOptions(format=value_format, schema=schema or "", registry=registry or "", message=message or "", errors=errors)
        check_options(options, {"format": "value_format", "message": "message"}, needs_schema=value_format != "json")
    return options


class Frame:
    """The records of a topic between fixed offsets, with chosen columns. Made by `ottla.frame`."""

    def __init__(
        self, topic: str, offsets: Mapping[int, tuple[int, int]], columns: Any, source: Source, *, progress: bool | None = None
    ) -> None:
        self.topic = topic
        self.offsets = dict(offsets)
        """By partition, the first offset and the end (exclusive). As the argument `offsets` of `ottla.frame` they give the same rows."""
        self._columns = columns
        self._source = source
        self._progress = progress

    @property
    def schema(self) -> Any:
        """The names and types of the columns, a `pyarrow.Schema`."""
        return self._columns.schema

    @property
    def row_count_max(self) -> int:
        """The number of offsets to read. Transactions and compaction leave offsets without a record, so there may be fewer rows."""
        return sum(end - start for start, end in self.offsets.values())

    def __repr__(self) -> str:
        names = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<ottla.frame {self.topic!r}: at most {self.row_count_max:,} rows of {names}>"

    def select(self, columns: Sequence[str]) -> Frame:
        """Returns a frame of the same records with fewer columns, in the given order. The other columns are not decoded. Raises
        `FrameUsageError` for a name that is no column."""
        return Frame(self.topic, self.offsets, self._columns.select(columns), self._source, progress=self._progress)

    def infer_json(self) -> Any:
        """Returns the type of the values as JSON, by a sample of each partition. Raises the errors of `to_reader`, and `FrameError` for
        values without a common type.
        """
        from ottla.schemas.errors import Misfit
        from ottla.schemas.json_columns import inferred_kind

        samples = []
        for number, (start, end) in self.offsets.items():
            of_one = Frame(self.topic, {number: (start, end)}, self._columns.select(["value"]), self._source, progress=False)
            samples += [rows.column("value").slice(0, SAMPLE_ROWS) for rows in islice(of_one.to_reader(), 1)]
        try:
            return inferred_kind(library("pyarrow").concat_arrays(samples).drop_null() if samples else samples)
        except Misfit as error:
            advice = "read it with value_format='text'"
            raise FrameError(f"{self.topic}: a sample of the values has no common type: {error}; {advice}") from None

    # Arrow

    def to_reader(self) -> Any:
        """Returns the rows as a `pyarrow.RecordBatchReader`, which reads the topic while it is consumed. The reader raises a `ClientError`
        (an `OffsetOutOfRangeError` if retention has removed records), `DamagedBatchError`, or `FrameError`.
        """
        pyarrow = library("pyarrow")
        return pyarrow.RecordBatchReader.from_batches(self.schema, self._batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Lets pyarrow, Polars, pandas and DuckDB read the frame as an Arrow stream. Each stream reads the topic again."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def to_arrow(self) -> Any:
        """Returns all rows as a `pyarrow.Table`. Raises as `to_reader` does."""
        return self.to_reader().read_all()

    # Libraries of DataFrames

    def to_polars(self) -> Any:
        """Returns all rows as a `polars.DataFrame`. Raises as `to_reader` does, and `MissingPackageError` without polars."""
        polars = library("polars")
        return polars.from_arrow(self.to_arrow())

    def to_pandas(self) -> Any:
        """Returns all rows as a `pandas.DataFrame`. Raises as `to_reader` does, and `MissingPackageError` without pandas."""
        library("pandas")
        return self.to_arrow().to_pandas()

    def to_duckdb(self, connection: Any = None) -> Any:
        """Returns a relation of DuckDB, in a connection or in DuckDB's default one. Each query of it reads the topic again, in a stream,
        and decodes all columns of the frame: `select` the needed ones first. Raises `MissingPackageError` without duckdb.
        """
        duckdb = library("duckdb")
        return (duckdb if connection is None else connection).from_arrow(self)

    def _batches(self) -> Iterator[Any]:
        from ottla.arrow.decode import decode_batches

        is_quiet = self._progress is False
        with self._source.connect() as client, Progress(self.topic, self.row_count_max, is_quiet=is_quiet) as bar:
            for number, (start, end) in self.offsets.items():
                position = start
                if start == end:
                    continue
                reading = client.read(
                    TopicPartition(self.topic, number), start, end, isolation=self._source.isolation, partition_max_bytes=FETCH_BYTES
                )
                for fetched in reading:
                    for rows in decode_batches(fetched, end, schema=self._columns.stored):
                        yield self._converted(rows, number, position)
                    bar.add(min(end, fetched.next_offset) - position)
                    position = fetched.next_offset

    def _converted(self, rows: Any, number: int, position: int) -> Any:
        try:
            with as_frame_errors():
                return self._columns.convert(rows)
        except UnfitValueError as error:
            advice = "read it with errors='null' or value_format='text'"
            raise FrameError(f"{self.topic}-{number} offset {error.offset}: the value does not fit: {error}; {advice}") from None
        except FrameError as error:
            raise FrameError(f"{self.topic}-{number}, from offset {position} on: {error}") from None
