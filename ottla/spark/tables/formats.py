"""Opens the log of a table in its format, and names the packages to install if they are missing."""

from __future__ import annotations

import sys

from ottla.spark.errors import MissingRequirementError
from ottla.spark.tables.table import DELTA, Table
from ottla.spark.tables.table_log import TableLog

INSTALL = "pip install 'deltalake>=1.6' 'pyiceberg[sql-sqlite]>=0.12' 'pyarrow>=18'"
"""The command that installs the packages of the extra `table`."""


def open_log(table: Table) -> TableLog:
    """Returns the log of a table, which need not exist yet. Raises `MissingRequirementError` without the format's library."""
    try:
        if table.format == DELTA:
            from ottla.spark.tables.delta import DeltaLog

            return DeltaLog(table)
        from ottla.spark.tables.iceberg import IcebergLog

        return IcebergLog(table)
    except ModuleNotFoundError as error:
        raise MissingRequirementError(
            f"{error.name} is missing in {sys.executable}, which writes {table.format} tables: {INSTALL}"
        ) from None
