"""Differences between the versions of PySpark that work here. A comment at each says which version of Spark makes it unnecessary.

docs/spark.md has the table of versions. Spark 3 has no data sources in Python (`least_spark.py`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
    except ModuleNotFoundError:  # before Spark 4.2

        class ReadLimit:
            """Not used: before Spark 4.2 `latestOffset` gets no limit."""

        class ReadAllAvailable(ReadLimit):
            pass

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        @dataclass
        class ReadMaxBytes(ReadLimit):
            max_bytes: int

        class SupportsTriggerAvailableNow(ABC):
            @abstractmethod
            def prepareForTriggerAvailableNow(self) -> None: ...

    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # before Spark 4.1; from 4.1 on a writer gets Arrow batches if its class is also a writer of batch jobs

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            pass


__all__ = [
    "LOCAL_CHECKPOINTS", "DataSourceStreamArrowWriter", "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows",
    "SupportsTriggerAvailableNow", "has_start_of_batches", "register", "stop_at_end",
]  # fmt: skip

_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

LOCAL_CHECKPOINTS = ".".join([
    "org.apache.spark.sql.execution.streaming",
    *(["checkpointing"] if _VERSION >= (4, 1) else []),
    "FileSystemBasedCheckpointFileManager",
])  # fmt: skip
"""The `CHECKPOINT_MANAGER` for a local disk. With Spark's default, Hadoop starts nine processes for each batch (chmod, readlink), so the
two checkpoint files of a batch take three times as long. With this class Spark may miss a second driver that writes the same file at the
same moment. The sink then fences one of the two drivers (`relay.py`). Four processes are left (`session.quick_checkpoints`)."""


def has_start_of_batches() -> bool:
    """Whether a source gets the start of the next batch and the query's trigger from Spark: from Spark 4.2 on."""
    return _VERSION >= (4, 2)


def register(session: Any, source: type[DataSource]) -> None:
    """Registers a data source in a session. Before Spark 4.1 a session refuses a data source that it has already found by itself."""
    try:
        session.dataSource.register(source)
    except AnalysisException as error:
        if _VERSION >= (4, 1) or "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def stop_at_end(query: Any, errors: tuple[type[Exception], ...]) -> None:
    """Stops a query when it has read what its source has to read. Before Spark 4.2 the trigger `availableNow` reads everything in one batch
    of any size, so pipelines use another trigger there. `errors` are the exceptions of calls to Spark.
    """

    def wait() -> None:
        try:
            query.processAllAvailable()
            query.stop()
        except errors:
            pass  # the query has failed, and reports that itself

    threading.Thread(target=wait, name=f"end-of-{query.id}", daemon=True).start()
