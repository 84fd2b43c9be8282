"""Makes Spark find the data source `ottla` without registration: Spark looks for a `DefaultSource` in all installed packages named
`pyspark_*`.
"""

from __future__ import annotations

from ottla.spark.data_source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
