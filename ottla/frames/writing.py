"""`ottla.write_frame`: the rows of a DataFrame become records of a topic, in one transaction.

    ottla.write_frame(polars.DataFrame({"customer": ["ann"], "amount": [12]}), "orders", key="customer")

Rows are read as an Arrow stream and encoded column by column (`ottla/arrow`), as in the Spark sink. Kafka's default partitioner chooses the
partitions. If there is a column of values, a column `partition` may choose them instead. Readers of committed records see all rows or none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ottla.analysis.progress import Progress
from ottla.frames.errors import FrameUsageError
from ottla.frames.packages import as_frame_errors, library
from ottla.frames.source import source_of
from ottla.schemas.errors import Misfit
from ottla.schemas.value_options import ValueOptions, check_options

ROWS_MAX = 65_536
"""Maximum number of rows that are encoded at once."""
RECORD_COLUMNS = ("key", "value", "headers", "timestamp", "partition")


def write_frame(
    rows: Any,
    topic: str,
    *,
    key: str | None = None,
    value: str | None = None,
    value_format: str | None = None,
    schema: str | None = None,
    registry: str | None = None,
    message: str | None = None,
    compression: str = "lz4",
    timeout_s: float = 60.0,
    bootstrap: str | None = None,
    config: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> int:
    """Writes the rows to a topic in one transaction, and returns their number.

    `rows` is anything that gives an Arrow stream: a DataFrame of Polars or pandas, a relation of DuckDB, a `pyarrow.Table`, an
    `ottla.frame`. The column of the values is `value`, or the column that the argument `value` names. With such a column, `headers`,
    `timestamp` and `partition` are parts of the record too, and all other columns are ignored. Without it, the value of each record is the
    whole row as a JSON object, and no column may contain bytes. The column of the keys is `key`, or the column that the argument `key`
    names; keys are strings, bytes or integers.

    With a `value_format` (`json`, `avro` or `protobuf`) the column of the values, or the whole row, is encoded: by `schema` (its text, or
    the path of a file), or by the newest schema of the subject TOPIC-value in `registry`, the URL of a schema registry. With both, the
    schema is stored as a version of the subject first. `message` is the name of a Protobuf message, by default the first.

    `compression` is none, gzip, snappy, lz4 or zstd. The brokers abort the transaction if it is open for more than `timeout_s` seconds.
    `bootstrap`, `config` and `progress` have the same meaning as for `ottla.frame`.

    Raises `FrameUsageError` for rows, columns and arguments that do not fit, `UnknownTopicError` and other `ClientError`s, and
    `MissingPackageError` without the packages of `ottla[frame]`. After an error no row is visible, except after `OutcomeUnknownError`:
    then no answer has shown whether the commit was executed, and all rows may be visible.
    """
    library("pyarrow"), library("numpy")
    from ottla.arrow.encode import encode_rows
    from ottla.arrow.errors import RowsError
    from ottla.arrow.partitioning import assign_partitions

    options = _value_options(value_format, schema, registry, message)
    count, total = 0, len(rows) if hasattr(rows, "__len__") else 0
    with source_of(bootstrap, config).connect() as client, Progress(topic, total, is_quiet=progress is False) as bar:
        partitions = {topic: len(client.describe_topic(topic).partitions)}
        records = _records(rows, topic, key, value, options)
        with client.transaction(f"ottla-frame-{uuid.uuid4()}", timeout_ms=int(timeout_s * 1000)) as transaction:
            try:
                for some in records:
                    for partition, of_one in assign_partitions(some, partitions, topic):
                        encoded = encode_rows(of_one, compression=compression, is_transactional=True)
                        transaction.produce({partition: [batch.data for batch in encoded]})
                    count += some.num_rows
                    bar.add(some.num_rows)
            except RowsError as error:
                raise FrameUsageError(f"rows: {error}") from None
    return count


def _value_options(value_format: str | None, schema: str | None, registry: str | None, message: str | None) -> Any:
    """Returns the options of encoded values, None without a format. Raises `FrameUsageError` for options that contradict each other."""
    given = {"schema": schema, "registry": registry, "message": message}
    extra = next((name for name, option in given.items() if option), None)
    if value_format is None:
        if extra is not None:
            raise FrameUsageError(f"{extra}: it needs a value_format, json, avro or protobuf")
        return None
    with as_frame_errors():
        options = ValueOptions(format=value_format, schema=schema or "", registry=registry or "", message=message or "")
        check_options(options, {"format": "value_format", "message": "message"}, needs_schema=value_format != "json")
    return options


def _encoder(options: Any, topic: str, kind: Any) -> Any:
    from ottla.schemas.values import ValueEncoder, resolve_written

    with as_frame_errors():
        try:
            return ValueEncoder(resolve_written(options, [topic], kind))
        except Misfit as error:
            raise FrameUsageError(f"rows: {error}") from None


def _records(rows: Any, topic: str, key: str | None, value: str | None, options: Any) -> Iterator[Any]:
    """Returns an iterator over batches with the columns of records. Raises `FrameUsageError` for a name that is no column, rows without an
    Arrow stream, and columns that do not fit the schema, or would have to become JSON and have bytes."""
    pyarrow = library("pyarrow")
    if not hasattr(rows, "__arrow_c_stream__"):
        raise FrameUsageError(f"rows: a DataFrame, or a table that gives an Arrow stream, not {type(rows).__name__}")
    reader = pyarrow.RecordBatchReader.from_stream(rows)
    names = reader.schema.names
    for argument, name in (("key", key), ("value", value)):
        if name is not None and name not in names:
            raise FrameUsageError(f"{argument}: there is no column {name!r}, only {', '.join(names)}")
    value = value or ("value" if "value" in names else None)
    if value is None and options is None:
        _check_json(reader.schema)
        options = ValueOptions(format="json")
    kind = pyarrow.struct(list(reader.schema)) if value is None else reader.schema.field(value).type
    encoder = None if options is None else _encoder(options, topic, kind)
    return _renamed(reader, key or ("key" if "key" in names else None), value, encoder)


def _renamed(reader: Any, key: str | None, value: str | None, encoder: Any) -> Iterator[Any]:
    pyarrow = library("pyarrow")
    for batch in reader:
        for start in range(0, batch.num_rows, ROWS_MAX):
            rows = batch.slice(start, ROWS_MAX)
            names = [name for name in RECORD_COLUMNS if name in rows.schema.names] if value else []
            values = rows.column(value) if value else rows.to_struct_array()
            columns = {name: rows.column(name) for name in names} | {"value": values if encoder is None else _encoded(encoder, values)}
            if key is not None:
                columns["key"] = _as_key(rows.column(key))
            yield pyarrow.record_batch(columns)


def _encoded(encoder: Any, values: Any) -> Any:
    try:
        return encoder.encode(values)
    except Misfit as error:
        raise FrameUsageError(f"rows: {error}") from None


def _as_key(column: Any) -> Any:
    pyarrow = library("pyarrow")
    return column.cast(pyarrow.string()) if pyarrow.types.is_integer(column.type) else column


def _check_json(schema: Any) -> None:
    for field in schema:
        if _has_bytes(field.type):
            advice = "name the column of the values with `value`"
            raise FrameUsageError(f"rows: column {field.name!r} has bytes, which JSON cannot hold; {advice}")


def _has_bytes(kind: Any) -> bool:
    """Whether values of an Arrow type are bytes, or contain bytes."""
    types = library("pyarrow").types
    if types.is_dictionary(kind):
        return _has_bytes(kind.value_type)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind)
    return is_bytes or any(_has_bytes(kind.field(number).type) for number in range(kind.num_fields))
