"""Several drivers, also late ones, commit batches to a table: each batch is committed by exactly one of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ottla.client import TopicPartition
from ottla.spark.errors import OffsetConflictError, OutputError
from ottla.spark.tables.table import Table
from tests.spark.tables.drivers import (
    GROUP,
    TOPIC,
    Driver,
    commits_of,
    delta_table,
    iceberg,
    iceberg_table,
    live_files,
    numbers_of,
    rows_of,
)


@pytest.fixture(params=[delta_table, iceberg_table], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made: Table = request.param(tmp_path, partition_by=["part"])
    return made


@pytest.fixture
def delta(tmp_path: Path) -> Table:
    return delta_table(tmp_path, partition_by=["part"])


def files(table: Table) -> set[str]:
    """Returns all data files of the table's directory."""
    return {str(path.relative_to(table.uri)) for path in Path(table.uri).rglob("part-*.parquet")}


def append(table: Table, number: int) -> None:
    """Adds a row as another program would."""
    row = pa.table({"number": [number], "part": ["x"]})
    if table.format == "delta":
        write_deltalake(table.uri, row, mode="append")
    else:
        iceberg(table).append(row)


def test_batches_follow_each_other(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is another package
    driver = Driver(table)
    for batch_id in range(3):
        made = driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)
        assert made is not None and made.sequence == batch_id + 1
    assert numbers_of(table) == list(range(30))
    assert files(table) == live_files(table)
    wanted = [(number, f"p {number % 3}/%") for number in range(30)]
    assert sorted(rows_of(table)) == wanted
    frame = polars.read_delta(table.uri) if table.format == "delta" else polars.scan_iceberg(iceberg(table)).collect()
    assert sorted(frame.rows()) == wanted


def test_a_zombie_that_wakes_up_before_its_commit_finds_the_batch_done(table: Table) -> None:
    zombie, driver = Driver(table), Driver(table)
    late = zombie.execute(0, range(10))
    driver.run(0, 0, 10)
    zombie.commit(0, late, 0, 10)
    assert numbers_of(table) == list(range(10))
    assert files(table) == live_files(table)


def test_a_zombie_that_has_read_the_log_before_is_refused_by_the_log(table: Table) -> None:
    """The other driver commits after the zombie has read the log and before the zombie commits; the log then refuses the zombie's commit.
    """
    zombie, driver = Driver(table), Driver(table)
    late = zombie.execute(0, range(10))
    commit = zombie.log.commit

    def commit_late(*arguments: object) -> None:
        zombie.log.commit = commit  # type: ignore[method-assign]
        driver.run(0, 0, 10)
        commit(*arguments)  # type: ignore[arg-type]

    zombie.log.commit = commit_late  # type: ignore[method-assign]
    zombie.commit(0, late, 0, 10)
    assert numbers_of(table) == list(range(10))
    assert len(commits_of(table)) == 1
    assert files(table) == live_files(table)


def test_a_second_copy_with_other_batches_is_refused(table: Table) -> None:
    first, second = Driver(table, "first"), Driver(table, "second")
    first.run(0, 0, 10)
    with pytest.raises(OffsetConflictError, match="neither the start nor the end"):
        second.run(0, 0, 12)
    first.run(1, 10, 20)
    assert numbers_of(table) == list(range(20))


def test_a_commit_whose_answer_was_lost_keeps_its_files(table: Table) -> None:
    driver = Driver(table)
    execution = driver.execute(0, range(10))
    driver.commit(0, execution, 0, 10)
    driver.commit(0, execution, 0, 10)
    assert numbers_of(table) == list(range(10))
    assert files(table) == live_files(table)


def test_other_writers_do_not_matter(table: Table) -> None:
    driver, other = Driver(table), Driver(table, "other-query", "other-group")
    driver.run(0, 0, 10)
    execution = driver.execute(1, range(10, 20))
    other.run(0, 100, 105)
    append(table, 1000)
    driver.commit(1, execution, 10, 20)
    assert numbers_of(table) == [*range(20), *range(100, 105), 1000]
    assert [(one["group"], one["sequence"]) for one in commits_of(table)] == [(GROUP, 1), ("other-group", 1), (GROUP, 2)]


def test_the_position_is_known_after_the_log_has_expired(delta: Table) -> None:
    driver = Driver(delta)
    driver.run(0, 0, 10)
    for number in range(3):
        write_deltalake(delta.uri, pa.table({"number": [1000 + number], "part": ["x"]}), mode="append")
    DeltaTable(delta.uri).create_checkpoint()
    for version in range(4):
        (Path(delta.uri) / "_delta_log" / f"{version:020d}.json").unlink()
    driver = Driver(delta)
    driver.log.refresh()
    position = driver.log.position(GROUP, [TopicPartition(TOPIC, 0)])
    assert (position.sequence, position.committed[TopicPartition(TOPIC, 0)].offset, position.last) == (1, 10, None)
    driver.run(0, 0, 10)
    made = driver.run(1, 10, 20)
    assert made is not None and made.sequence == 2
    assert numbers_of(delta) == [*range(20), 1000, 1001, 1002]


def test_a_table_that_was_deleted_is_noticed(delta: Table) -> None:
    driver = Driver(delta)
    driver.run(0, 0, 10)
    shutil.rmtree(delta.uri)
    with pytest.raises(OffsetConflictError, match="the table has no offset for in-0"):
        Driver(delta).run(1, 10, 20)


def test_a_column_that_was_dropped_in_between_is_noticed(delta: Table) -> None:
    driver = Driver(delta)
    execution = driver.execute(0, range(10))
    empty = pa.table({"part": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    write_deltalake(delta.uri, empty, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(OutputError, match="the table has no column number"):
        driver.commit(0, execution, 0, 10)


def test_one_of_many_drivers_commits_each_batch(table: Table, tmp_path: Path) -> None:
    """Several processes run the same batches; each is killed at some moment and started again. Each batch is committed once."""
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys\n"
        "from tests.spark.tables.drivers import Driver\n"
        "from ottla.spark.errors import OffsetConflictError\n"
        "from ottla.spark.tables.table import Table\n"
        "driver = Driver(Table.from_json(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "for batch_id in range(12):\n"
        "    try:\n"
        "        driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)\n"
        "    except OffsetConflictError:\n"
        "        pass  # another one is further\n"
        "    print(batch_id, flush=True)\n"
    )

    def start() -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        return subprocess.Popen([sys.executable, str(script), table.to_json()], stdout=subprocess.PIPE, text=True, env=environment)

    running = [start(), start()]
    for number, batch_id in enumerate((3, 7)):
        process = running[number % 2]
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == str(batch_id):
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        running[number % 2] = start()
    for process in running:
        process.communicate()
        assert process.returncode == 0
    assert numbers_of(table) == list(range(120))
    assert [one["batch_id"] for one in commits_of(table)] == list(range(12))
