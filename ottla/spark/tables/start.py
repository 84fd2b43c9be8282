"""Prepares the start of a pipeline with a table: sets the group's offsets to the offsets in the table's log. A query without checkpoint
begins at the group's offsets.

If a driver died between the two commits, the group is behind the table. The table's log is the truth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client import Client
from ottla.spark.connections import ask
from ottla.spark.options import SinkOptions, parse_sink
from ottla.spark.relay import refuse_live_members
from ottla.spark.tables.formats import open_log
from ottla.spark.tables.table import Table


def prepare_start(session: Any, table: Table, group: str, options: Mapping[str, str]) -> None:
    """Registers the format in the session, and sets the group's offsets to the table's. Raises `PipelineError` if the table cannot be read,
    or the group has live members."""
    from ottla.spark.spark_versions import register
    from ottla.spark.tables.sink import TableSource

    register(session, TableSource)
    align_group(table, group, parse_sink(options))


def align_group(table: Table, group: str, options: SinkOptions) -> None:
    log = open_log(table)
    has_table = log.find()

    def align(client: Client) -> None:
        refuse_live_members(client, group)
        known = client.committed(group)
        position = log.position(group, known) if has_table else None
        if position is not None and any(known.get(one) != found for one, found in position.committed.items()):
            client.commit(group, position.committed)

    ask(options.connection, "group", align)


def table_writer(rows: Any, table: Table, options: Mapping[str, str]) -> Any:
    """Returns the query's writer (`DataStreamWriter`)."""
    from ottla.spark.tables.sink import FORMAT, TABLE_OPTION

    return rows.writeStream.format(FORMAT).options(**options, **{TABLE_OPTION: table.to_json()}).outputMode("append")
