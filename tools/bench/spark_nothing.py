"""A Spark data source in Python that does nothing: its reader yields one Arrow batch repeatedly, its writer drops the rows. It measures the
time that Spark takes to move rows between Java and Python, which every source and sink in Python needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition, WriterCommitMessage

from ottla.spark.data_source import COLUMNS
from tools.bench.spark_codec import make_rows

BATCH_ROWS = {100: 16_384, 1000: 2_048}
"""Rows per Arrow batch, by the bytes of a value: about the 2 MiB that the source `ottla` yields at once."""

DIFFERENT_ROWS = 64


class Nothing(DataSource):
    """The format `nothing`. The options `rows`, `valueBytes` and `partitions` say what its reader yields."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> Any:
        return COLUMNS

    def reader(self, schema: Any) -> NothingReader:
        return NothingReader(*(int(self.options[name]) for name in ("rows", "valueBytes", "partitions")))

    def writer(self, schema: Any, overwrite: bool) -> NothingWriter:
        return NothingWriter()


class NothingReader(DataSourceReader):
    """Yields rows with the columns of the source `ottla`, equally many in each partition."""

    def __init__(self, rows: int, value_bytes: int, partitions: int) -> None:
        self.rows = rows
        self.value_bytes = value_bytes
        self.parts = partitions

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch = source_batch(BATCH_ROWS[self.value_bytes], self.value_bytes)
        left = self.rows // self.parts
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


class NothingWriter(DataSourceArrowWriter):
    """Takes rows and drops them."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: the rows were dropped."""


def source_batch(rows: int, value_bytes: int) -> Any:
    """Makes rows with the columns of the source `ottla`. Keys and values differ, the other columns are the same in all rows."""
    made = make_rows(DIFFERENT_ROWS, value_bytes)
    which = pa.array([number % DIFFERENT_ROWS for number in range(rows)])
    columns = {
        "key": made.column("key").take(which),
        "value": made.column("value").take(which),
        "topic": pa.array(["source"] * rows),
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * rows, pa.int32()),
    }
    fields = [pa.field(name, column.type, nullable=name in ("key", "value")) for name, column in columns.items()]
    return pa.record_batch(list(columns.values()), schema=pa.schema(fields))
