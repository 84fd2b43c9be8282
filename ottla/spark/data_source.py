"""Spark's entry point: the data source `ottla`, which Spark finds without registration through the package `pyspark_ottla`.

    spark.readStream.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

Columns: `COLUMNS` (and `headers` with `includeHeaders`), or some of them with `.schema("key BINARY, value BINARY")`. Spark requests all
columns of a Python source, and copies every column even if the query does not use it.

A batch read is a snapshot taken at `load()`: each action reads the same records. With `.schema(...)` the snapshot is taken when the action
begins. The options of a source are checked when the DataFrame is made, so that a misspelled one is reported immediately.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.connections import ask, reported
from ottla.spark.errors import MissingRequirementError, OptionError, PipelineError
from ottla.spark.options import ReadForm, SourceOptions, is_source, parse_sink, parse_source
from ottla.spark.planning import BoundsByPartition
from ottla.spark.sink import OttlaBatchWriter, OttlaStreamWriter
from ottla.spark.source import OttlaBatchReader, OttlaStreamReader, read_snapshot
from ottla.spark.spark_versions import DataSourceStreamArrowWriter, SupportsTriggerAvailableNow

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("timestamp", TimestampType(), nullable=False),
        StructField("timestampType", IntegerType(), nullable=False),
    ]
)
"""The columns of the source, with the names and types of Spark's own connector. They are not nullable where possible, because Spark checks
nullable columns row by row."""

COLUMNS_WITH_HEADERS = StructType([*COLUMNS, StructField("headers", ArrayType(_HEADER))])


class OttlaDataSource(DataSource):
    @reported()
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        _require_pyarrow()
        self._source = parse_source(options) if is_source(options) else None
        self._bounds: BoundsByPartition | None = None
        self._values: Any = None

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @reported()
    def schema(self) -> StructType:
        """Returns the columns, and takes the snapshot for batch reads of this DataFrame. Spark calls it before a stream too."""
        if self._source is None:
            _require_options(self.options)
            self._source = parse_source(self.options)
        source = self._source
        connection, option = source.connection, source.subscription.option
        self._bounds = ask(connection, option, lambda client: read_snapshot(client, source, may_match_later=True))
        if source.values is not None:
            self._values = _resolved(source)
        return _known_columns(source, self._values)

    @reported()
    def reader(self, schema: StructType) -> DataSourceReader:
        source, form = self._checked(schema)
        return OttlaBatchReader(source, self._bounds, form)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return OttlaStreamReader(*self._checked(schema))
        except PipelineError as error:
            return RefusedStreamReader(error)

    def _checked(self, schema: StructType) -> tuple[SourceOptions, ReadForm]:
        _require_options(self.options)
        source = self._source or parse_source(self.options)
        if source.values is not None and self._values is None:
            self._values = _resolved(source, next((field.dataType for field in schema if field.name == "value"), None))
        expected = _known_columns(source, self._values)
        types = {field.name: field.dataType for field in expected}
        if not schema.fields or any(types.get(field.name) != field.dataType for field in schema):
            raise OptionError(
                f"schema: the columns are {expected.simpleString()}; .schema(...) may name some of them, with these types, or be left out"
            )
        return source, ReadForm([(field.name, field.nullable) for field in schema], self._values)

    @reported()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        _require_options(self.options)
        return OttlaBatchWriter(parse_sink(self.options), schema, overwrite)

    @reported()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return OttlaStreamWriter(parse_sink(self.options), schema)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Replaces the reader of an invalid stream and raises its error when Spark asks for offsets. Spark 4.3 hides errors of `streamReader`.
    """

    def __init__(self, error: PipelineError) -> None:
        self.error = error

    @reported()
    def _refuse(self, *_: Any) -> Any:
        raise self.error

    initialOffset = latestOffset = partitions = read = prepareForTriggerAvailableNow = _refuse


def _resolved(source: SourceOptions, given: Any = None) -> Any:
    """Returns the schema of typed values, and checks the topic of dead letters. `given` is the type of the value column in `.schema(...)`;
    JSON needs no other schema. Raises `PipelineError`.
    """
    from ottla.spark.typed_values import resolve_source

    assert source.values is not None
    if source.dead_letter_topic:
        ask(source.connection, "errors", lambda client: client.describe_topic(source.dead_letter_topic))
    return resolve_source(source, source.values, given)


def _known_columns(source: SourceOptions, values: Any) -> StructType:
    known = COLUMNS_WITH_HEADERS if source.with_headers else COLUMNS
    if values is None:
        return known
    from ottla.spark.typed_values import DEAD_LETTER, DEAD_LETTER_KIND, spark_type, value_kind

    kind = value_kind(values)
    fields = [StructField("value", spark_type(kind)) if field.name == "value" else field for field in known]
    letters = [StructField(DEAD_LETTER, spark_type(DEAD_LETTER_KIND))] if source.dead_letter_topic else []
    return StructType([*fields, *letters])


def _require_options(options: Any) -> None:
    if not options:
        raise OptionError(
            "kafka.bootstrap.servers: missing; Spark does not pass the options of CREATE TABLE to sources in Python: use CREATE TEMPORARY "
            "VIEW ... USING ottla OPTIONS (...), or give them with the query: SELECT ... FROM the_table WITH (...), INSERT INTO the_table "
            "WITH (...) SELECT ..., or CREATE VIEW ... AS SELECT ... FROM the_table WITH (...), which keeps them"
        )


def _require_pyarrow() -> None:
    """Checks for pyarrow first: without it Spark itself would fail with an unclear error."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingRequirementError(
            f"pyarrow is missing in {sys.executable}, the Python of Spark's workers: pip install pyarrow there, or set "
            "PYSPARK_PYTHON to a Python that has it"
        ) from None
