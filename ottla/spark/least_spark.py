"""Refuses a PySpark that is too old. Needs no pyspark."""

from __future__ import annotations

import sys

from ottla.spark.errors import MissingRequirementError

LEAST_SPARK = (4, 0)
"""The first version of Spark with data sources in Python."""


def check_spark() -> None:
    """Raises `MissingRequirementError` if a PySpark is imported that is too old. Such a PySpark does not find the format ottla."""
    version = str(getattr(sys.modules.get("pyspark"), "__version__", ""))
    if version and int(version.partition(".")[0]) < LEAST_SPARK[0]:
        least = ".".join(map(str, LEAST_SPARK))
        raise MissingRequirementError(
            f"PySpark {version} has no data sources in Python; PySpark {least} or later is needed for the format ottla, and 4.1 for all of "
            "it: pip install 'pyspark>=4.1'"
        )
