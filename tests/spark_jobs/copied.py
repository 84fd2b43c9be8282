"""A topic of numbers that a pipeline copies or counts, and checks that its output, in a topic or a table, has every number once."""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import duckdb
import polars

import ottla.client
from ottla.client import Client, ClientError, TopicPartition
from ottla.spark import Table
from ottla.spark.tables.verify import verify_table
from ottla.spark.verify import verify
from ottla.wire.records import Record, encode_batch
from tests.spark.pipeline import wait_for_markers, wait_for_topic
from tests.spark.tables.drivers import delta, iceberg
from tests.spark_jobs.cluster_program import WINDOW_S, Job
from tests.spark_jobs.queries import committed_records

SOURCE_PARTITIONS = 4
SINK_PARTITIONS = 3


class Copy:
    """Source, sink, group and checkpoint of one pipeline, none of them used before; the source has the numbers from 0 on."""

    kind = "copy"

    def __init__(self, bootstrap: str, directory: Path, *, rows: int, batches: int) -> None:
        name = uuid.uuid4().hex[:12]
        self.bootstrap = bootstrap
        self.rows = rows
        self.group, self.source, self.sink = f"group-{name}", f"in-{name}", f"out-{name}"
        self.checkpoint = directory / f"checkpoint-{name}"
        self.markers = directory / f"markers-{name}"
        self.markers.mkdir()
        self._offsets_a_batch = max(1, rows // batches)
        with ottla.client.connect(bootstrap) as client:
            for topic, partitions in ((self.source, SOURCE_PARTITIONS), (self.sink, SINK_PARTITIONS)):
                client.create_topic(topic, partitions=partitions)
                wait_for_topic(client, topic)
            for number in range(SOURCE_PARTITIONS):
                self._write(client, number, range(number, rows, SOURCE_PARTITIONS))

    def _write(self, client: Client, partition: int, numbers: Iterable[int]) -> None:
        now_ms = int(time.time() * 1000)  # an older record might be deleted as being beyond the retention
        records = [Record(0, now_ms, b"%d" % number, b"%d" % number, ()) for number in numbers]
        client.produce_batches({TopicPartition(self.source, partition): [encode_batch(records)]})

    def job(self, *, fault: str = "", starts_max: int = 1, **sink_options: str) -> Job:
        return Job(
            kind=self.kind,
            bootstrap=self.bootstrap,
            source=self.source,
            sink=self.sink,
            group=self.group,
            checkpoint=str(self.checkpoint),
            offsets_a_batch=self._offsets_a_batch,
            starts_max=starts_max,
            fault=fault,
            markers=str(self.markers),
            sink_options=sink_options,
        )

    def forget_checkpoint(self) -> None:
        """Deletes the checkpoint, which a stateless query can do without."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def progress(self) -> float:
        """Returns the committed part of the source, from 0 to 1; -1 while no broker answers."""
        try:
            with ottla.client.connect(self.bootstrap, timeout_s=5.0) as client:
                partitions = [TopicPartition(self.source, number) for number in range(SOURCE_PARTITIONS)]
                return sum(one.offset for one in client.committed(self.group, partitions).values()) / self.rows
        except ClientError:
            return -1.0

    def has_more(self) -> bool:
        """Called when everything is read. Returns whether there are more records now, so that the job has to run again."""
        return False

    def check(self) -> None:
        """Checks with a stock client that the sink has every expected record once, and verifies it from the log."""
        with ottla.client.connect(self.bootstrap) as client:
            wait_for_markers(client, f"eos/{self.group}")
            self.check_values([message.value() for message in committed_records(self.bootstrap, self.sink)])
            proof = verify(client, self.group, [self.sink])
            assert proof.is_proved, proof.faults

    def check_values(self, values: list[bytes]) -> None:
        """Checks that each number is in the sink once."""
        found = Counter(int(value.partition(b"/")[0]) for value in values)
        missing = [number for number in range(self.rows) if number not in found]
        doubled = [number for number, count in found.items() if count > 1]
        assert (missing[:10], doubled[:10], found.total()) == ([], [], self.rows)


class TableCopy(Copy):
    """A copy into a table, partitioned by the numbers' remainders."""

    kind = "table"

    def __init__(self, bootstrap: str, directory: Path, format: str, *, rows: int, batches: int) -> None:
        super().__init__(bootstrap, directory, rows=rows, batches=batches)
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"} if format == "iceberg" else {}
        self.table = Table(str(directory / self.sink), format=format, partition_by=["part"], catalog=catalog)
        self.sink = self.table.to_json()

    def steps(self, pattern: str) -> set[str]:
        """Returns the number of files in the table's directory."""
        return {str(path) for path in Path(self.table.uri).glob(pattern)}

    def check(self) -> None:
        """Checks with DuckDB, Polars and the format's library that the table has each number once, and verifies it from the table's log."""
        rows = delta(self.table).to_pyarrow_table() if self.table.format == "delta" else iceberg(self.table).scan().to_arrow()
        assert rows.schema.names == ["value", "part"]
        self.check_values([value.encode() for value, _ in duckdb.from_arrow(rows).fetchall()])
        frame = polars.read_delta(self.table.uri) if self.table.format == "delta" else polars.scan_iceberg(iceberg(self.table)).collect()
        self.check_values([value.encode() for value in frame["value"]])
        assert all(int(value.partition("/")[0]) % 3 == part for value, part in frame.rows())
        with ottla.client.connect(self.bootstrap) as client:
            proof = verify_table(client, self.group, self.table)
            assert proof.is_proved, proof.faults


class Windows(Copy):
    """A query with state: counts of windows. Its checkpoint must not be lost."""

    kind = "windows"
    _is_closed = False

    def forget_checkpoint(self) -> None:
        """Does nothing: the checkpoint is kept, because it has the open windows."""

    def has_more(self) -> bool:
        """Writes a last row, far behind the others, that lets the watermark close all windows."""
        if self._is_closed:
            return False
        self._is_closed = True
        with ottla.client.connect(self.bootstrap) as client:
            self._write(client, 0, [self.rows + 1_000_000])
        return True

    def check_values(self, values: list[bytes]) -> None:
        """Checks that each window is in the sink once, with all of its rows."""
        wanted = [b"%d/%d" % (start, min(WINDOW_S, self.rows - start)) for start in range(0, self.rows, WINDOW_S)]
        assert sorted(values) == sorted(wanted)
