"""The shared session works: Python tasks run in the interpreter of these tests, with pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ottla.spark.session import ARROW_BYTES, ARROW_BYTES_MAX


def test_tasks_run_in_this_interpreter(spark: Any) -> None:
    def name_interpreter(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable]})

    rows = spark.range(1).mapInArrow(name_interpreter, "path string").collect()
    assert {row.path for row in rows} == {sys.executable}


def test_wide_rows_reach_workers_in_batches_of_the_chosen_size(spark: Any) -> None:
    def measure(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    wide = spark.range(0, 4000, 1, 1).selectExpr("repeat('x', 4096) AS value")
    spark.conf.set(ARROW_BYTES, ARROW_BYTES_MAX)
    try:
        sizes = [row.rows for row in wide.mapInArrow(measure, "rows long").collect()]
    finally:
        spark.conf.unset(ARROW_BYTES)
    assert sum(sizes) == 4000
    assert 300 < max(sizes) < 700, "about 512 rows of 4 KiB are 2 MiB"
