"""`verify_table` accepts a table that was written exactly once, and finds each fault that is planted in its log or its files."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from ottla.client import Client
from ottla.spark.tables.compaction import compact
from ottla.spark.tables.errors import MissingTableError
from ottla.spark.tables.table import Table
from ottla.spark.tables.verify import verify_table
from ottla.spark.verify import Verification
from ottla.testing.handle import BrokerHandle
from tests.spark.tables.drivers import Driver, delta_table, iceberg, iceberg_table, live_files


class Written:
    """A topic of 30 records, and a table with its first 20 in two batches."""

    def __init__(self, client: Client, broker: BrokerHandle, table: Table) -> None:
        self.client, self.table = client, table
        name = uuid.uuid4().hex[:12]
        self.group, self.topic = f"group-{name}", broker.create_topic(f"in-{name}", 1)
        with client.producer() as producer:
            for number in range(30):
                producer.produce(self.topic, b"%d" % number)
        self.driver = Driver(self.table, group=self.group, topic=self.topic)
        for batch_id in range(2):
            self.run(batch_id, 10 * batch_id, 10 * batch_id + 10)

    def run(self, batch_id: int, start: int, end: int) -> None:
        made = self.driver.run(batch_id, start, end)
        assert made is not None
        self.client.commit(self.group, made.committed())

    def check(self, **options: Any) -> Verification:
        return verify_table(self.client, self.group, self.table, **options)

    def faults(self) -> list[str]:
        return [fault.kind for fault in self.check().faults]

    def change(self, version: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the lines of a version of the log."""
        path = Path(self.table.uri, "_delta_log", f"{version:020d}.json")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            change(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def change_commit(self, version: int, **fields: Any) -> None:
        self.change(version, lambda line: line.get("commitInfo", {}).get("ottla", {}).update(fields))

    def file(self) -> Path:
        return Path(DeltaTable(self.table.uri).file_uris()[0])


@pytest.fixture
def written(client: Client, broker: BrokerHandle, tmp_path: Path) -> Written:
    return Written(client, broker, delta_table(tmp_path))


def test_an_iceberg_table_is_proved_and_other_writers_are_found(client: Client, broker: BrokerHandle, tmp_path: Path) -> None:
    written = Written(client, broker, iceberg_table(tmp_path))
    found = written.check()
    assert found.is_proved and not found.notes
    assert (found.batches, found.rows, found.sink[0].rows) == (2, 20, 20)
    assert compact(written.table)[:2] == (2, 1) and written.check() == found
    iceberg(written.table).append(pa.table({"number": [1000], "part": ["x"]}))
    assert written.faults() == ["foreign"]
    assert written.check(may_share_sink=True).is_proved
    Path(written.table.uri, min(live_files(written.table))).unlink()
    assert written.faults() == ["file", "foreign"]


def test_a_table_without_faults_is_proved(written: Written) -> None:
    found = written.check()
    assert found.is_proved and not found.notes
    assert (found.batches, found.rows, found.first_batch, found.last_batch) == (2, 20, ("query", 0), ("query", 1))
    assert [tuple(one) for one in found.source] == [(written.topic, 0, 0, 20, 2, 20, 10)]
    assert [tuple(one) for one in found.sink] == [(written.table.uri, 0, 1, 3, 20, 0)]


def test_compaction_changes_nothing(written: Written) -> None:
    DeltaTable(written.table.uri).optimize.compact()
    assert len(DeltaTable(written.table.uri).file_uris()) == 1
    assert written.check().is_proved


def test_a_batch_that_is_missing_or_there_twice_is_found(written: Written) -> None:
    written.change_commit(2, ranges={written.topic: {"0": [15, 20]}})
    assert written.faults() == ["gap"]
    written.change_commit(2, ranges={written.topic: {"0": [5, 20]}})
    assert written.faults() == ["overlap"]
    written.change_commit(2, ranges={written.topic: {"0": [10, 20]}}, batch_id=0)
    assert written.faults() == ["repeated"]
    written.change_commit(2, batch_id=1, sequence=3)
    assert written.faults() == ["sequence"]


def test_an_execution_that_is_committed_twice_is_found(written: Written) -> None:
    log = Path(written.table.uri, "_delta_log")
    shutil.copy(log / f"{2:020d}.json", log / f"{3:020d}.json")
    assert {"overlap", "repeated", "sequence"} <= set(written.faults())


def test_rows_that_the_commit_does_not_name_are_found(written: Written) -> None:
    written.change_commit(2, rows=11)
    assert written.faults() == ["missing"]
    written.change_commit(2, rows=9)
    assert written.faults() == ["surplus"]


def test_a_file_that_is_missing_damaged_or_of_other_rows_is_found(written: Written) -> None:
    file = written.file()
    rows = pq.read_table(file)
    pq.write_table(rows.slice(1), file)
    assert written.faults() == ["file"]
    file.write_bytes(b"no parquet")
    assert written.faults() == ["file"]
    file.unlink()
    assert written.faults() == ["file"]


def test_other_writers_are_a_fault_or_a_note(written: Written) -> None:
    write_deltalake(written.table.uri, pa.table({"number": [1000], "part": ["x"]}), mode="append")
    assert written.faults() == ["foreign"]
    found = written.check(may_share_sink=True)
    assert found.is_proved and "other writers added 1 rows" in found.notes[0] and found.sink[0].other_rows == 1


def test_rows_that_others_removed_are_found(written: Written) -> None:
    DeltaTable(written.table.uri).delete("number = 3")
    assert "foreign" in written.faults()


def test_a_group_that_was_left_behind_is_a_note(written: Written) -> None:
    written.driver.run(2, 20, 30)
    found = written.check()
    assert found.is_proved and "its next start sets them" in found.notes[0]


def test_what_has_expired_is_not_judged(written: Written) -> None:
    DeltaTable(written.table.uri).create_checkpoint()
    for version in range(2):
        Path(written.table.uri, "_delta_log", f"{version:020d}.json").unlink()
    found = written.check()
    assert found.is_proved and "the proof begins with batch 1 of query query" in found.notes[0]


def test_without_a_commit_or_a_table_nothing_is_proved(written: Written) -> None:
    found = verify_table(written.client, "other-group", written.table)
    assert not found.is_proved and found.faults[0].kind == "absent"
    with pytest.raises(MissingTableError, match="there is no Delta table"):
        verify_table(written.client, written.group, Table(written.table.uri + "-other"))
