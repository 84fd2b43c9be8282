"""Tables in an object store with failures: refusals, lost answers, a missing bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.spark.errors import PipelineError
from ottla.spark.tables.compaction import compact
from ottla.spark.tables.table import Table
from tests.spark.tables.drivers import Driver, commits_of, live_files, numbers_of
from tests.spark.tables.object_store import BUCKET, ObjectStore


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    started = ObjectStore()
    yield started
    started.stop()


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> Iterator[Table]:
    options = {"catalog": {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}} if request.param == "iceberg" else {}
    location = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    yield Table(location, format=request.param, partition_by=["part"], storage=store.storage, **options)
    store.set_faults()


def test_batches_follow_each_other(table: Table) -> None:
    driver = Driver(table)
    for batch_id in range(3):
        driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)
    assert numbers_of(table) == list(range(30))


def test_files_of_killed_attempts_are_removed(table: Table) -> None:
    driver = Driver(table)
    driver.execute(0, range(5))
    driver.run(0, 0, 10)
    assert set(driver.files.below(f"{driver.log.data_directory}/query-query".lstrip("/"))) == live_files(table)


def test_small_files_are_joined(table: Table) -> None:
    driver = Driver(table)
    for batch_id in range(2):
        driver.run(batch_id, 10 * batch_id, 10 * batch_id + 10)
    assert compact(table)[:2] == (6, 3)
    assert numbers_of(table) == list(range(20)) and len(live_files(table)) == 3


def test_requests_that_fail_for_a_moment_are_repeated(table: Table, store: ObjectStore) -> None:
    driver = Driver(table)
    driver.run(0, 0, 10)
    store.set_faults((r"PUT .*parquet", 503, 1), (r"PUT .*(_delta_log|metadata)/", 503, 1), ("GET ", 503, 1))
    driver.run(1, 10, 20)
    assert store.hits()[:2] == [1, 1]
    assert numbers_of(table) == list(range(20))


def test_a_commit_whose_answer_is_lost_is_there_once(table: Table, store: ObjectStore) -> None:
    driver = Driver(table)
    driver.run(0, 0, 10)
    store.set_faults((r"PUT .*(_delta_log|metadata)/", 0, 1))
    execution = driver.execute(1, range(10, 20))
    try:
        driver.commit(1, execution, 10, 20)
    except PipelineError:
        Driver(table).run(1, 10, 20)  # as the next start
    assert store.hits() == [1]
    assert numbers_of(table) == list(range(20))
    assert [one["sequence"] for one in commits_of(table)] == [1, 2]


def test_two_drivers_do_not_both_commit(table: Table) -> None:
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


def test_a_store_that_refuses_is_one_line_and_a_restart_continues(table: Table, store: ObjectStore) -> None:
    Driver(table).run(0, 0, 10)
    store.set_faults(("PUT ", 403, 1_000))
    with pytest.raises(PipelineError) as caught:
        Driver(table).run(1, 10, 20)
    assert store.hits()[0] > 0 and "\n" not in str(caught.value) and table.uri in str(caught.value)
    store.set_faults()
    assert numbers_of(table) == list(range(10))
    Driver(table).run(1, 10, 20)
    assert numbers_of(table) == list(range(20))


def test_a_bucket_that_does_not_exist_is_one_line(table: Table) -> None:
    with pytest.raises(PipelineError) as caught:
        Driver(replace(table, location="s3://no-such-bucket/table")).run(0, 0, 10)
    assert "\n" not in str(caught.value) and "no-such-bucket" in str(caught.value)
