"""Makes encoded batches for tests of the pipeline, and reads the records of a topic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ottla.client import LATEST, Client, TopicPartition
from ottla.spark.spool import SpoolWriter, TaskOutput
from ottla.wire.records import Record, encode_batch

NOW_MS = int(time.time() * 1000)
"""The records' timestamp: brokers delete by it what is older than the retention."""

Rows = Mapping[TopicPartition, Sequence[bytes]]


def encode(*values: bytes) -> bytearray:
    """Returns a record batch of these values, as the sink makes it."""
    return encode_batch([Record(0, NOW_MS + at, None, value, ()) for at, value in enumerate(values)], is_transactional=True)


def task_output(rows: Rows, *, directory: str | None = None, task: str = "0-0", copies: int = 1) -> TaskOutput:
    """Returns the message to the driver of a task that wrote these rows, with `copies` batches for each partition."""
    with SpoolWriter(task, directory) as writer:
        for partition, values in rows.items():
            for _ in range(copies):
                writer.append(partition, encode(*values), len(values))
        return writer.finish()


def values(client: Client, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """Returns the values in all partitions of a topic, by partition and offset."""
    found: list[bytes] = []
    for info in client.describe_topic(topic).partitions:
        partition = TopicPartition(topic, info.partition)
        end = client.list_offsets({partition: LATEST}, isolation=isolation)[partition].offset
        for fetched in client.read(partition, 0, end, isolation=isolation):
            found += [bytes(record.value or b"") for record in fetched.records()]
    return found
