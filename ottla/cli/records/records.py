"""`ottla records delete`: deletes the records before the offsets in a JSON file, as kafka-delete-records does.

The file: `{"partitions": [{"topic": "t", "partition": 0, "offset": 42}], "version": 1}`; offset -1 means all records. For one
topic, `ottla topic trim` is shorter.
"""

from __future__ import annotations

import json

from ottla.base.counted import counted
from ottla.base.types import TopicPartition
from ottla.cli.command import YES, Args, Refused, UsageError, command, confirm, option
from ottla.cli.input_files import read_json
from ottla.cli.render.ottla import Output, Row, unshown
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import admin
from ottla.client.errors import KafkaError


class DeletionRow(Row):
    """The result of a partition: its new first offset, or the error."""

    topic: str
    partition: int
    low_watermark: int | None
    error: str | None
    failure: KafkaError | None = unshown()


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Returns the partitions and offsets in the file. Raises UsageError, which names the invalid entry."""
    tree = read_json(path)
    entries = tree.get("partitions") if isinstance(tree, dict) and tree.get("version", 1) == 1 else None
    if not isinstance(entries, list) or not entries:
        raise UsageError(f'{path} is not {{"partitions": [{{"topic": ..., "partition": ..., "offset": ...}}], "version": 1}}')
    found: dict[TopicPartition, int] = {}
    for number, entry in enumerate(entries, 1):
        values = [entry.get(name) if isinstance(entry, dict) else None for name in ("topic", "partition", "offset")]
        topic, partition, offset = values
        if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(offset, int) or offset < -1:
            raise UsageError(f"{path}, entry {number}: needs topic, partition and offset, not {json.dumps(entry)[:80]}")
        if TopicPartition(topic, partition) in found:
            raise UsageError(f"{path} names {topic}-{partition} twice")
        found[TopicPartition(topic, partition)] = offset
    return found


@command(
    "records delete",
    "Delete the records before given offsets.",
    option("--offset-json-file", required=True, metavar="FILE", help="topics, partitions and offsets"),
    YES,
    needs="DELETE TOPIC",
)
def _delete(args: Args, cluster: Cluster, output: Output) -> int:
    before = read_offsets(args.offset_json_file)
    confirm(args, f"Delete records of {', '.join(map(str, before))}?")
    results = admin.delete_records(cluster, before)
    failures = {partition: result for partition, result in results.items() if isinstance(result, KafkaError)}
    lows = {partition: result for partition, result in results.items() if isinstance(result, int)}
    names = {partition: failure.code.name for partition, failure in failures.items()}
    rows = [DeletionRow(*key, lows.get(key), names.get(key), failures.get(key)) for key in sorted(results)]
    output.rows("partitions", DeletionRow, rows)
    if failures and output.is_structured:
        first = next(iter(failures.values()))
        raise Refused(f"records not deleted in {len(failures)} of {counted(len(rows), 'partition')}", first.code.name)
    return 1 if failures else 0
