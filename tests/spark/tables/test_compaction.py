"""Compaction joins files, keeps rows and position, and removes what is old and in no version."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.spark.errors import PipelineError
from ottla.spark.tables.compaction import compact
from ottla.spark.tables.errors import MissingTableError
from ottla.spark.tables.table import Table
from tests.spark.tables.drivers import Driver, delta_table, iceberg_table, rows_of

WEEKS_S = 15 * 24 * 3600


def test_small_files_are_joined_between_two_batches(tmp_path: Path) -> None:
    table = delta_table(tmp_path, partition_by=["part"])
    driver = Driver(table)
    for batch_id in range(4):
        driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)
    late = driver.execute(4, range(40, 50))
    found = compact(table)
    assert (found.files_before, found.files_after, found.removed) == (12, 3, 0) and found.size_bytes > 0
    driver.commit(4, late, 40, 50)
    assert [number for number, _ in rows_of(table)] == list(range(50))
    assert [one.commit.batch_id for one in Driver(table).log.history().commits if one.commit is not None] == list(range(5))


def test_old_files_of_killed_attempts_are_removed(tmp_path: Path) -> None:
    table = delta_table(tmp_path)
    driver = Driver(table)
    driver.run(0, 0, 10)
    lost, recent = Driver(table, "lost").execute(0, range(10)), Driver(table, "recent").execute(0, range(10))
    old = tmp_path / "table" / lost.files[0].path
    os.utime(old, (time.time() - WEEKS_S, time.time() - WEEKS_S))
    assert compact(table).removed == 1
    assert not old.exists() and (tmp_path / "table" / recent.files[0].path).exists()
    assert [number for number, _ in rows_of(table)] == list(range(10))


def test_a_table_that_cannot_be_compacted_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingTableError, match="there is no Delta table"):
        compact(Table(str(tmp_path / "none")))
    with pytest.raises(PipelineError, match="format: files of iceberg tables"):
        compact(iceberg_table(tmp_path))
