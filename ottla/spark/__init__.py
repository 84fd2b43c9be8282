"""Exactly-once pipelines on Spark: a data source and sink named `ottla`, and the relay that commits their output.

Tasks read record batches into Arrow and encode Arrow into record batches. The driver commits the encoded output in one transaction with the
group's offsets. Importing the package imports neither pyspark nor pyarrow; only the modules that need them do. `Pipeline` and
`Table` are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.spark.least_spark import check_spark

if TYPE_CHECKING:
    from ottla.spark.pipeline import Pipeline
    from ottla.spark.tables.table import Table

__all__ = ["Pipeline", "Table"]

_MODULES = {"Pipeline": "ottla.spark.pipeline", "Table": "ottla.spark.tables.table"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


check_spark()
