"""Makes a pipeline's transactions by hand, with or without faults, as input for tests of `verify`."""

from __future__ import annotations

import time
import uuid

from ottla.client import Client, Committed, TopicPartition
from ottla.spark.commit_metadata import CommitMetadata
from ottla.spark.output_digest import OutputDigest
from ottla.testing.broker import Broker
from ottla.wire.records import Record, encode_batch

TIMESTAMP_MS = time.time_ns() // 1_000_000  # no retention deletes records of today


def batch_of(*values: bytes, is_transactional: bool = True) -> bytearray:
    records = [Record(number, TIMESTAMP_MS, None, value, ()) for number, value in enumerate(values)]
    return bytearray(encode_batch(records, is_transactional=is_transactional))


class HandMadePipeline:
    """Copies a source of one partition to a sink of two partitions, ten offsets in each batch, as the relay does."""

    def __init__(self, client: Client, broker: Broker, *, rows: int = 100) -> None:
        name = uuid.uuid4().hex[:12]
        self.client = client
        self.group = f"group-{name}"
        self.source = TopicPartition(broker.create_topic(f"source-{name}"), 0)
        self.sink = broker.create_topic(f"sink-{name}", 2)
        self.query_id = str(uuid.uuid4())
        self.batch_id = 0
        self.position = 0
        self.spark_run, self.restarts = "", 0
        client.produce_batches({self.source: [batch_of(*(b"%d" % number for number in range(rows)), is_transactional=False)]})

    def run(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        written: int = 1,
        is_committed: bool = True,
        batch_id: int | None = None,
        partitions: int = 2,
    ) -> None:
        """Runs one batch: writes its output to the sink `written` times, and commits its offsets unless `is_committed` is False."""
        start = self.position if start is None else start
        end = start + 10 if end is None else end
        metadata, outputs = self._output(start, end, self.batch_id if batch_id is None else batch_id)
        transaction = self.client.transaction(f"eos/{self.group}")
        transaction.initialize()
        transaction.begin()
        for _ in range(written):
            transaction.produce({one: [bytearray(data)] for one, data in list(outputs.items())[:partitions]})
        if is_committed:
            transaction.commit_offsets(self.group, {self.source: Committed(end, metadata=metadata.to_text())})
            self.position = end
            self.batch_id = metadata.batch_id + 1
        transaction.commit()

    def _output(self, start: int, end: int, batch_id: int) -> tuple[CommitMetadata, dict[TopicPartition, bytearray]]:
        outputs = {
            TopicPartition(self.sink, number): batch_of(*(b"row %d" % row for row in range(start + number, end, 2)))
            for number in range(2)
            if end - start > number
        }
        digest = OutputDigest()
        for partition, data in outputs.items():
            digest.add(partition, data)
        metadata = CommitMetadata(self.query_id, batch_id, start, digest.rows, digest.text(), run=self.spark_run, restarts=self.restarts)
        return metadata, outputs
