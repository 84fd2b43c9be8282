"""Converts values of records to typed columns and back (`valueFormat`): their types in Spark, the rows of the source, and the rows of the
sink.

The source resolves the schema when the DataFrame is made, the sink when its writer is planned. Tasks get the resolved schema. They ask the
registry only for the schemas of values that were written with another schema. With `errors` = a topic, the source has a column
`deadLetter`, which is null in rows that fit. The sink writes it to its topic instead of the row, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ottla.arrow.blobs import HEADERS
from ottla.arrow.columns import find_column
from ottla.arrow.decode import arrow_schema, chosen_fields
from ottla.client import TopicPartition
from ottla.schemas.errors import Misfit
from ottla.schemas.value_options import FAIL, ValueOptions
from ottla.schemas.values import ValueDecoder, ValueEncoder, ValueSchema, resolve_values, resolve_written
from ottla.spark.errors import OptionError, OutputError, UnfitValueError, as_pipeline_errors
from ottla.spark.options import ReadForm, SinkOptions, SourceOptions

DEAD_LETTER = "deadLetter"
"""The column with the records that are written to the topic of `errors`."""
DEAD_LETTER_KIND = pa.struct([("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)])
PREFIX = "__dlq.errors."
"""Prefix of the additional headers of a dead letter. Dead letters of share groups have the same prefix."""

# Reading


def resolve_source(options: SourceOptions, values: ValueOptions, given: Any = None) -> ValueSchema:
    """Returns the schema of the values. Without a schema and a registry, values in JSON have Spark's type `given`. Raises `PipelineError`.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    if not values.schema and not values.registry:
        if given is None:
            raise OptionError("schema: missing; valueFormat=json needs a schema, a registry, or .schema('... value STRUCT<...>')")
        return ValueSchema(options=values, kind=to_arrow_type(given, timezone="UTC"))
    topics = options.subscription.topics or sorted({partition.topic for partition in options.subscription.partitions})
    with as_pipeline_errors():
        return resolve_values(values, topics)


def value_kind(values: ValueSchema) -> Any:
    """Returns the Arrow type of the values. Raises `OptionError` if the schema has no Arrow type, or Spark has no such type."""
    with as_pipeline_errors():
        kind = ValueDecoder(values).kind
    spark_type(kind)
    return kind


def spark_type(kind: Any) -> Any:
    """Returns Spark's type for an Arrow type. Raises `OptionError`, which names the field, if there is none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    for place, leaf in _leaves(kind, "value"):
        try:
            found = to_arrow_type(from_arrow_type(leaf, prefer_timestamp_ntz=True), timezone="UTC")
        except PySparkException:
            found = None
        if found != leaf:
            raise OptionError(f"schema: {place} is {leaf}, and Spark has no type for it; take another schema, or leave valueFormat out")
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def _leaves(kind: Any, place: str) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, f"{place}.{field.name}")
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{place}[]")
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_type, f"{place} (key)")
        yield from _leaves(kind.item_type, f"{place}.*")
    else:
        yield place, kind


class RowReader:
    """Makes the rows of the source from decoded record batches: `stored` has the fields to decode, `convert` returns the rows."""

    def __init__(self, options: SourceOptions, form: ReadForm | None) -> None:
        known = arrow_schema(include_headers=True)
        plain = [(field.name, field.nullable) for field in arrow_schema(include_headers=options.with_headers)]
        self._columns = columns = plain if form is None else form.columns
        self._decoder: ValueDecoder | None = None
        if form is None or form.values is None or "value" not in dict(columns):
            self.stored = chosen_fields(known, columns)
            return
        extra = ("offset", *(("key", "headers") if DEAD_LETTER in dict(columns) else ()))
        names = dict.fromkeys([*(name for name, _ in columns if name != DEAD_LETTER), *extra])
        self.stored = pa.schema([known.field(name) for name in names])
        self._decoder = ValueDecoder(form.values)
        self._values = form.values.options

    def convert(self, rows: Any, partition: TopicPartition) -> Any:
        """Returns the rows with the columns of the source. Raises `UnfitValueError`, and `PipelineError` if the registry does not answer.
        """
        if self._decoder is None:
            return rows
        values = rows.column("value")
        with as_pipeline_errors():
            found, is_bad = self._decoder.decode(values)
        has_bad = bool(is_bad.any())
        if has_bad and self._values.errors == FAIL:
            place = int(is_bad.argmax())
            raise UnfitValueError(
                f"valueFormat={self._values.format}: the value of {partition} at offset {rows.column('offset')[place].as_py()} does not "
                f"fit the schema: {self._decoder.misfit(values[place].as_py())}; errors=null or errors=TOPIC reads on"
            )
        fields, columns = [], []
        for name, may_be_null in self._columns:
            column = found if name == "value" else self._dead_letters(rows, is_bad, partition) if name == DEAD_LETTER else rows.column(name)
            fields.append(pa.field(name, column.type, nullable=may_be_null))
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _dead_letters(self, rows: Any, is_bad: Any, partition: TopicPartition) -> Any:
        if not is_bad.any():
            return pa.nulls(len(is_bad), DEAD_LETTER_KIND)
        assert self._decoder is not None
        letters = []
        for row in rows.filter(pa.array(is_bad)).to_pylist():
            notes = {
                "topic": partition.topic, "partition": partition.partition, "offset": row["offset"],
                "message": self._decoder.misfit(row["value"]),
            }  # fmt: skip
            headers = [*(row["headers"] or []), *({"key": PREFIX + name, "value": str(text).encode()} for name, text in notes.items())]
            letters.append({"topic": self._values.errors, "key": row["key"], "value": row["value"], "headers": headers})
        return pa.array(letters, DEAD_LETTER_KIND).take(pa.array(is_bad.cumsum() - 1, mask=~is_bad))


def with_dead_letters(transform: Callable[..., Any], *streams: Any, **named: Any) -> Any:
    """Returns `transform(*streams, **named)` and the dead letters of the streams, for the sink. `transform` gets only rows that fit,
    without the column `deadLetter`. Spark reads the sources twice."""
    from pyspark.sql import functions as f

    def fit(rows: Any) -> Any:
        return rows.where(f.col(DEAD_LETTER).isNull()).drop(DEAD_LETTER)

    made = transform(*map(fit, streams), **{name: fit(rows) for name, rows in named.items()})
    nulls = [f.lit(None).cast(field.dataType).alias(field.name) for field in made.schema]
    for rows in (*streams, *named.values()):
        made = made.unionByName(rows.where(f.col(DEAD_LETTER).isNotNull()).select(*nulls, DEAD_LETTER), allowMissingColumns=True)
    return made


# Writing


def resolve_sink(options: SinkOptions, kind: Any) -> ValueSchema | None:
    """Returns the schema for values of this Arrow type, None if the sink writes bytes. A schema for a registry is stored there,
    once in each process. Raises `PipelineError`."""
    if options.values is None:
        return None
    with as_pipeline_errors():
        try:
            return _resolved(options.values, options.topic, kind)
        except Misfit as error:
            raise OptionError(f"schema: {error}") from None


@lru_cache(16)
def _resolved(values: ValueOptions, topic: str | None, kind: Any) -> ValueSchema:
    return resolve_written(values, [topic] if topic else [], kind)


class RowWriter:
    """Makes the rows of the sink: encodes typed values, and separates dead letters from other rows."""

    def __init__(self, values: ValueSchema | None) -> None:
        self._encoder: ValueEncoder | None = None
        if values is not None:
            with as_pipeline_errors():
                self._encoder = ValueEncoder(values)

    def parts(self, rows: Any, topic: str | None) -> Iterator[tuple[Any, str | None]]:
        """Yields tables of rows, each with the topic of all its rows, or None if the rows name their topics. Raises `OutputError`."""
        letters = find_column(rows, DEAD_LETTER)
        if letters is not None and letters.null_count < len(letters):
            is_letter = letters.is_valid()
            yield pa.Table.from_batches(pa.RecordBatch.from_struct_array(chunk) for chunk in letters.filter(is_letter).chunks), None
            rows = rows.filter(letters.is_null())
        if self._encoder is not None:
            at = rows.schema.get_field_index("value")
            rows = rows.set_column(at, "value", self._encoded(rows.column("value")))
        if len(rows):
            yield rows, topic

    def _encoded(self, column: Any) -> Any:
        assert self._encoder is not None
        try:
            return pa.chunked_array([self._encoder.encode(chunk) for chunk in column.chunks], pa.binary())
        except Misfit as error:
            raise OutputError(f"value: a row does not fit the schema: {error}") from None
