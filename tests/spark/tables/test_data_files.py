"""The Parquet files of a task: partitions, size goal, bounds on memory and open files, statistics, clean-up."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.spark.errors import OutputError
from ottla.spark.tables import data_files
from ottla.spark.tables.columns import check_columns, fitted
from ottla.spark.tables.data_files import DataFile, FilePlan, RowFiles
from ottla.spark.tables.delta_statistics import statistics
from ottla.spark.tables.storage import TableFiles
from ottla.spark.tables.table import Table


def task(directory: Path, columns: pa.Schema, *partition_by: str, file_bytes: int = 1 << 30) -> RowFiles:
    plan = FilePlan(columns, partition_by, "batch", file_bytes, "zstd", False)
    return RowFiles(TableFiles(Table(str(directory))), plan, 7)


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def read(directory: Path, file: DataFile) -> list[dict[str, Any]]:
    with (directory / file.path).open("rb") as stream:
        found: list[dict[str, Any]] = pq.read_table(stream).to_pylist()
    return found


def test_rows_are_divided_by_the_values_of_several_columns(tmp_path: Path) -> None:
    batch = rows(n=[1, 2, 3, 4, 5, 6], a=["x", None, "x", "", "y", "x"], b=[1, 1, None, 1, 2, 1])
    made = task(tmp_path, batch.schema, "a", "b")
    made.add(batch)
    made.add(rows(n=[7], a=["x"], b=[1]))
    found = {file.values: [row["n"] for row in read(tmp_path, file)] for file in made.finish()}
    assert found == {("x", 1): [1, 6, 7], (None, 1): [2, 4], ("x", None): [3], ("y", 2): [5]}
    assert all(set(pq.read_schema(path).names) == {"n"} for path in tmp_path.rglob("*.parquet"))


def test_values_become_directories_that_every_reader_can_take_apart(tmp_path: Path) -> None:
    batch = rows(n=[1, 2], a=["a/b =%", None])
    made = task(tmp_path, batch.schema, "a")
    made.add(batch)
    assert {file.path.split("/")[1] for file in made.finish()} == {"a=a%2Fb%20%3D%25", "a=__HIVE_DEFAULT_PARTITION__"}


def test_a_file_ends_at_the_size_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 8_000)
    made = task(tmp_path, pa.schema([("n", pa.int64())]), file_bytes=20_000)
    for start in range(0, 20_000, 1_000):
        made.add(rows(n=list(range(start, start + 1_000))))
    found = made.finish()
    assert len(found) >= 3 and all(file.size_bytes < 30_000 for file in found)
    assert [row["n"] for file in found for row in read(tmp_path, file)] == list(range(20_000))
    assert sum(file.rows for file in found) == 20_000


def test_many_partitions_keep_few_files_open_and_little_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 3)
    monkeypatch.setattr(data_files, "BUFFERED_BYTES_MAX", 2_000)
    columns = pa.schema([("n", pa.int64()), ("a", pa.int32())])
    made = task(tmp_path, columns, "a")
    for start in range(0, 1_000, 100):
        numbers = range(start, start + 100)
        made.add(pa.RecordBatch.from_pydict({"n": numbers, "a": [number % 10 for number in numbers]}, columns))
        assert len(made._open) <= 3 and made._buffered <= 2_000
    found = made.finish()
    assert sorted(row["n"] for file in found for row in read(tmp_path, file)) == list(range(1_000))


def test_a_discarded_task_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "OPEN_FILES_MAX", 1)
    made = task(tmp_path, pa.schema([("n", pa.int64()), ("a", pa.string())]), "a")
    made.add(rows(n=[1, 2], a=["x", "y"]))
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    made.discard()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_two_attempts_never_have_a_name_in_common(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        made = task(tmp_path, pa.schema([("n", pa.int64())]))
        made.add(rows(n=[1]))
        names |= {file.path for file in made.finish()}
    assert len(names) == 2


def test_statistics_bound_the_values(tmp_path: Path) -> None:
    moments = [datetime.datetime(2026, 1, 2, 3, 4, 5, 678_001, datetime.UTC), datetime.datetime(2026, 1, 2, 3, 4, 5, 1, datetime.UTC)]
    batch = rows(
        n=[5, -3], text=["b", None], long=["x" * 40, "y"], when=pa.array(moments, pa.timestamp("us", "UTC")), ratio=[float("nan"), 1.0],
        day=[datetime.date(2026, 1, 2)] * 2, raw=[b"a", b"b"],
    )  # fmt: skip
    made = task(tmp_path, batch.schema)
    made.add(batch)
    (file,) = made.finish()
    found = json.loads(statistics(file.footer))
    assert found["numRecords"] == 2
    assert found["minValues"] == {"n": -3, "text": "b", "when": "2026-01-02T03:04:05.000Z", "day": "2026-01-02"}
    assert found["maxValues"] == {"n": 5, "text": "b", "when": "2026-01-02T03:04:05.679Z", "day": "2026-01-02"}
    assert found["nullCount"] == {"n": 0, "text": 1, "long": 0, "when": 0, "ratio": 0, "day": 0, "raw": 0}


def test_rows_are_fitted_to_the_table() -> None:
    columns = pa.schema([("b", pa.string()), ("a", pa.int64())])
    assert fitted(rows(a=[1, 2]), columns).to_pydict() == {"b": [None, None], "a": [1, 2]}
    with pytest.raises(OutputError, match="column a has a null"):
        fitted(rows(a=pa.array([None], pa.int64())), pa.schema([pa.field("a", pa.int64(), nullable=False)]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pa.schema([("a", pa.int64()), ("c", pa.int64())]), "add_columns: the table has no column c"),
        (pa.schema([("b", pa.string())]), "column a may not be null in the table"),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), "column A is called a in the table"),
        (pa.schema([("a", pa.string())]), "column a is of type int64 in the table and string in the rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused(given: pa.Schema, said: str) -> None:
    table = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
    with pytest.raises(OutputError) as caught:
        check_columns(given, table, ())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("names", "said"), [(["c"], "no column c"), (["f"], "column f is of type double"), (["a", "b"], "names all columns")]
)
def test_a_partition_needs_a_column_with_a_text_form(names: list[str], said: str) -> None:
    columns = pa.schema([("a", pa.int64()), ("b", pa.string()), *([("f", pa.float64())] if names == ["f"] else [])])
    with pytest.raises(OutputError) as caught:
        check_columns(columns, None, names)
    assert said in str(caught.value)
