"""Exactly-once pipelines on Spark: a data source and sink named `ottla`, and the relay that commits their output.

Tasks read record batches into Arrow and encode Arrow into record batches. The driver commits the encoded output in one transaction with the
group's offsets. Importing the package imports neither pyspark nor pyarrow; only the modules that need them do. `Pipeline` and
`Table` are imported on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ottla.spark.errors import MissingRequirementError

if TYPE_CHECKING:
    from ottla.spark.pipeline import Pipeline
    from ottla.spark.tables.table import Table

__all__ = ["Pipeline", "Table"]

LEAST_SPARK = (4, 0)
"""The first version of Spark with data sources in Python."""

_MODULES = {"Pipeline": "ottla.spark.pipeline", "Table": "ottla.spark.tables.table"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ottla.spark' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def check_spark() -> None:
    """Raises `MissingRequirementError` if a PySpark is imported that is too old. Such a PySpark does not find the format ottla."""
    version = str(getattr(sys.modules.get("pyspark"), "__version__", ""))
    if version and int(version.partition(".")[0]) < LEAST_SPARK[0]:
        least = ".".join(map(str, LEAST_SPARK))
        raise MissingRequirementError(
            f"PySpark {version} has no data sources in Python; PySpark {least} or later is needed for the format ottla, and 4.1 for all of "
            "it: pip install 'pyspark>=4.1'"
        )


check_spark()
