"""Exactly-once pipelines on Spark: a data source and sink named `ottla`, and the relay that commits their output.

Tasks read record batches into Arrow and encode Arrow into record batches. The driver commits the encoded output in one transaction with the
group's offsets. Importing the package imports neither pyspark nor pyarrow; only the modules that need them do. `Pipeline`, `Table` and
`reason_of` are imported on first use. The import lets Spark's workers on this machine find the format `ottla` (`worker_python.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.spark.least_spark import check_spark
from ottla.spark.worker_process import is_worker_process
from ottla.spark.worker_python import make_format_known

if TYPE_CHECKING:
    from ottla.spark.errors import reason_of
    from ottla.spark.pipeline import Pipeline
    from ottla.spark.tables.table import Table

__all__ = ["Pipeline", "Table", "reason_of"]

_MODULES = {"Pipeline": "ottla.spark.pipeline", "Table": "ottla.spark.tables.table", "reason_of": "ottla.spark.errors"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


check_spark()
if not is_worker_process():
    make_format_known()
