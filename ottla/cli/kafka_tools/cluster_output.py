"""Prints the lines of `kafka-broker-api-versions`, `kafka-log-dirs` and `kafka-delete-records`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from ottla.cli.cluster.cluster import ApiRow
from ottla.cli.cluster.logdirs import BrokerDirectories, DirectoryRow
from ottla.cli.kafka_tools.usage import java_error
from ottla.cli.output import write
from ottla.cli.records.records import DeletionRow
from ottla.cli.render.kafka import Printers


def _show_apis(rows: Sequence[ApiRow]) -> None:
    for node, group in itertools.groupby(rows, key=lambda row: row.node):
        lines = [
            f"\t{row.api}({row.key}): {row.min if row.min == row.max else f'{row.min} to {row.max}'}"
            f" [usable: {'unusable' if row.usable is None else row.usable}]"
            for row in group
        ]
        write(f"{node} -> (\n" + ",\n".join(lines) + "\n)\n")


def _show_directories(brokers: Sequence[BrokerDirectories]) -> None:
    """Prints two lines of text, then the directories as one line of JSON."""
    found = [{"broker": one.broker, "logDirs": [_directory(directory) for directory in one.log_dirs]} for one in brokers]
    write("Querying brokers for log directories information\n")
    write(f"Received log directory information from brokers {','.join(str(one.broker) for one in brokers)}\n")
    write(json.dumps({"brokers": found, "version": 1}, separators=(",", ":")) + "\n")


def _directory(directory: DirectoryRow) -> dict[str, object]:
    replicas = [
        {"partition": f"{one.topic}-{one.partition}", "size": one.size, "offsetLag": one.offset_lag, "isFuture": one.is_future}
        for one in directory.partitions
    ]
    cordoned = {"isCordoned": True} if directory.cordoned else {}
    return {"partitions": replicas, "error": directory.error, "logDir": directory.log_dir, **cordoned}


def _show_deletions(rows: Sequence[DeletionRow]) -> None:
    write("Executing records delete operation\nRecords delete operation completed:\n")
    for row in rows:
        result = f"low_watermark: {row.low_watermark}" if row.failure is None else f"error: {java_error(row.failure)}"
        write(f"partition: {row.topic}-{row.partition}\t{result}\n")


PRINTERS: Printers = {ApiRow: _show_apis, BrokerDirectories: _show_directories, DeletionRow: _show_deletions}
